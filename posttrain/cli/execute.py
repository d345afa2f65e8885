"""`posttrain run, resume`: a route on this machine."""

from __future__ import annotations

import time

import typer

from posttrain.cli.define import resolved
from posttrain.cli.embedded import Embedded
from posttrain.cli.options import (
    DEFAULT_WORKSPACE,
    Files,
    Name,
    Overrides,
    Preset,
    ProfileName,
    RouteName,
    RunName,
    Set,
    Workspace,
    existing,
)
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def run(
    route: RouteName,
    overrides: Overrides = None,
    profile: ProfileName = "laptop",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    name: Name = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run a route on this machine: check it, render it, carry it out, with a live view of its steps. In a pipe the
    view is one line a change. Ends with 0 only if the run succeeded."""
    definition = resolved(route, profile, preset, file, overrides, set_)
    called = name or f"{route}-{time.strftime('%Y%m%d-%H%M%S')}"
    raise typer.Exit(Embedded(workspace.absolute(), definition.profile).run(definition, called))


@app.command()
def resume(run: RunName, profile: ProfileName = "laptop", workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Go on with a run whose engine was interrupted or killed. Steps that ended do not run again."""
    raise typer.Exit(Embedded(existing(workspace), load_profile(profile)).resume(run))
