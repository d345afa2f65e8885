"""`posttrain run`: a route, or any manifest, on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from posttrain.cli.checks import is_manifest, parameters_of, read_manifest
from posttrain.cli.define import resolved
from posttrain.cli.embedded import Embedded
from posttrain.cli.options import (
    DEFAULT_WORKSPACE,
    Files,
    Name,
    Overrides,
    Preset,
    ProfileName,
    Set,
    Workspace,
)
from posttrain.errors import UserError
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def run(
    what: Annotated[str, typer.Argument(metavar="ROUTE|FILE", help="A route, or any Argo manifest; - is stdin.")],
    overrides: Overrides = None,
    profile: ProfileName = "laptop",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    name: Name = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run on this machine, with a live view of the steps; in a pipe the view is one line a change. A route is checked
    and rendered first. Of a manifest, KEY=VALUE sets a workflow parameter. Ends with 0 only if the run succeeded."""
    if is_manifest(what):
        if preset or file:
            raise UserError("belongs to a route", field="--preset and --file", remedy="give KEY=VALUE parameters")
        manifest = read_manifest(what)
        given = parameters_of(manifest, [*(overrides or []), *(set_ or [])])
        raise typer.Exit(Embedded(workspace.absolute(), load_profile(profile)).start(manifest, given, name))
    definition = resolved(what, profile, preset, file, overrides, set_)
    called = name or f"{what}-{time.strftime('%Y%m%d-%H%M%S')}"
    raise typer.Exit(Embedded(workspace.absolute(), definition.profile).run(definition, called))
