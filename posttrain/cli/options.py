"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from posttrain.errors import UserError

S = TypeVar("S")

RouteName = Annotated[str, typer.Argument(metavar="ROUTE", help="Name of the route: sft, evaluation.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Configuration, as in sft.learning_rate=1e-4. Keys under `profile.` set the profile.",
    ),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="The same as KEY=VALUE.")]
ProfileName = Annotated[
    str, typer.Option("--profile", "-p", metavar="NAME", help="Where it runs: laptop, cluster, or a YAML file.")
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="A stored configuration to start from: tiny, demo.")
]
Files = Annotated[
    list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="YAML laid over the preset; may be repeated.")
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the run. Default: a new one.")]
Workspace = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", metavar="DIR", envvar="POSTTRAIN_WORKSPACE", help="Where models, data and runs are kept."
    ),
]
DEFAULT_WORKSPACE = Path("workspace")


def group(help: str) -> typer.Typer:
    """A command that is there for its sub-commands."""
    return typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=help)


def existing(workspace: Path) -> Path:
    """`workspace` as an absolute path; UserError where there is no such directory."""
    if not workspace.is_dir():
        raise UserError(
            "no such directory", field="--workspace", value=str(workspace), remedy="start a run there first"
        )
    return workspace.absolute()


def service_settings(
    schema: type[S], file: Path | None, overrides: list[str] | None, *, where: str, database: str
) -> S:
    """A service's settings: those of `file`, the database that the variable `database` names, then `overrides`."""
    from posttrain.contract.config import load_yaml, resolve

    layers = [load_yaml(file, field="--file")] if file else []
    if given := os.environ.get(database):
        layers.append({"database": given})
    return resolve(schema, *layers, overrides=overrides or (), where=where)
