"""`posttrain config, validate, render, lint`: from a configuration to a manifest; nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli.options import (
    DEFAULT_WORKSPACE,
    Files,
    Name,
    Overrides,
    Preset,
    ProfileName,
    RouteName,
    Set,
    Workspace,
)
from workflows.definition import Definition, define
from workflows.manifest import to_yaml

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def config(
    route: RouteName,
    overrides: Overrides = None,
    preset: Preset = None,
    file: Files = None,
    profile: ProfileName = "laptop",
    set_: Set = None,
) -> None:
    """Print a route's whole configuration as YAML: a file for `--file`, with every key there is."""
    from posttrain.cli.explain import explain

    definition = resolved(route, profile, preset, file, overrides, set_)
    typer.echo(explain(definition.config))


@app.command()
def validate(
    route: RouteName,
    overrides: Overrides = None,
    profile: ProfileName = "laptop",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Check configuration and references of a whole route before anything starts."""
    from posttrain.cli.checks import problems_of

    definition = resolved(route, profile, preset, file, overrides, set_)
    problems = problems_of(definition, workspace.absolute())
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(2)
    typer.echo(f"route {route}: configuration and references are sound")


@app.command()
def render(
    route: RouteName,
    overrides: Overrides = None,
    profile: ProfileName = "cluster",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    name: Name = None,
) -> None:
    """Print the Argo manifest of a route as YAML: for kubectl, for git, for reading."""
    definition = resolved(route, profile, preset, file, overrides, set_)
    typer.echo(to_yaml(definition.render(name)), nl=False)


@app.command()
def lint(
    manifest: Annotated[str, typer.Argument(metavar="FILE", help="A manifest; - reads standard input.")],
    here: Annotated[bool, typer.Option("--here", help="Name what the embedded engine cannot run, too.")] = False,
) -> None:
    """Check a manifest by Argo's rules: keys and types that Argo does not know, references that lead nowhere."""
    from posttrain.cli.checks import findings_of

    found = findings_of(manifest, here=here)
    for line in found:
        typer.echo(line, err=True)
    if found:
        raise typer.Exit(2)
    typer.echo("no fault found")


def resolved(
    route: str,
    profile: str,
    preset: str | None,
    files: list[Path] | None,
    overrides: list[str] | None,
    more: list[str] | None,
) -> Definition:
    return define(route, profile, preset=preset, files=files or [], overrides=[*(overrides or []), *(more or [])])
