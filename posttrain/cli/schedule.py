"""`posttrain schedule …`: cron workflows on this machine."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from posttrain.cli.checks import is_manifest, read_manifest
from posttrain.cli.define import resolved
from posttrain.cli.embedded import engine_of, install
from posttrain.cli.options import (
    DEFAULT_WORKSPACE,
    Files,
    Overrides,
    Preset,
    ProfileName,
    Set,
    Workspace,
    existing,
    group,
)
from posttrain.engine import load
from posttrain.engine.cron.scheduler import Scheduler
from workflows.profile import load_profile

app = group("Cron workflows: runs that start by the clock.")

CronName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cron workflow.")]


@app.command()
def add(
    what: Annotated[str, typer.Argument(metavar="ROUTE|FILE", help="A route with a schedule, or a CronWorkflow.")],
    overrides: Overrides = None,
    profile: ProfileName = "laptop",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Schedule a CronWorkflow, or replace the one of its name. `schedule run` starts its runs."""
    if is_manifest(what):
        manifest = read_manifest(what)
    else:
        manifest = load(resolved(what, profile, preset, file, overrides, set_).render())
    workspace.mkdir(parents=True, exist_ok=True)
    typer.echo(f"scheduled {Scheduler(engine_of(workspace.absolute())).add(manifest)}")


@app.command(name="list")
def list_(workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the cron workflows of a workspace: when each ran last, and runs next."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "schedule", "state", "last", "next", "running"):
        grid.add_column(column)
    for found in Scheduler(engine_of(existing(workspace))).list():
        due = time.strftime("%Y-%m-%d %H:%M", time.localtime(found["next"])) if found["next"] else ""
        state = "suspended" if found["suspended"] else found["phase"].lower()
        grid.add_row(
            found["name"], "; ".join(found["schedules"]), state, found["last"] or "", due, " ".join(found["active"])
        )
    Console(highlight=False).print(grid)


@app.command()
def remove(name: CronName, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Forget a cron workflow. Its runs stay."""
    Scheduler(engine_of(existing(workspace))).remove(name)


@app.command()
def run(profile: ProfileName = "laptop", workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Start runs as they are due, until Ctrl-C. Killed, it goes on where it was."""
    chosen = load_profile(profile)
    install(chosen)

    def tell(event: dict[str, Any]) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        typer.echo(f"{clock} {event['node']}: {event['phase'].lower() or 'not started'} {event['message']}".rstrip())

    try:
        Scheduler(engine_of(existing(workspace), chosen)).run(tell)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
