"""`posttrain list, get, watch, logs`: what runs did and do, on this machine or on a cluster. Reads only."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.argo.status import phase, steps_of, times
from posttrain.cli.follow import table
from posttrain.cli.options import DEFAULT_WORKSPACE, RunName, Workspace
from posttrain.cli.places import Namespace, On, OnOption, place
from posttrain.cli.view import SYMBOLS, rows, summary
from posttrain.units import duration

app = typer.Typer(pretty_exceptions_enable=False)


class Form(StrEnum):
    table = "table"
    json = "json"
    yaml = "yaml"


@app.command(name="list")
def list_(workspace: Workspace = DEFAULT_WORKSPACE, on: OnOption = On.local, namespace: Namespace = None) -> None:
    """List the runs of a workspace or of a cluster's namespace, the newest first."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "run", "state", "steps", "started", "took"):
        grid.add_column(column)
    for workflow, idle in reversed(place(on, workspace, namespace).list()):
        started, finished = times(workflow)
        symbol, style = SYMBOLS.get(phase(workflow), ("?", "yellow"))
        steps = [s for s in steps_of(workflow) if not s.exit_handler]
        grid.add_row(
            Text(symbol, style),
            workflow["metadata"]["name"],
            Text("interrupted" if idle else phase(workflow).lower(), style),
            f"{sum(s.phase == 'Succeeded' for s in steps)}/{len(steps)}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(started)) if started else "",
            duration(finished - started) if started and finished else "",
        )
    Console(highlight=False).print(grid)


@app.command()
def get(
    run: RunName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    output: Annotated[Form, typer.Option("--output", "-o", help="table, or the whole workflow object.")] = Form.table,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Show one run: its steps with states, times and what they said, or the whole workflow object."""
    where = place(on, workspace, namespace)
    workflow = where.get(run)
    if output is Form.json:
        typer.echo(json.dumps(workflow, indent=2, ensure_ascii=False))
    elif output is Form.yaml:
        from workflows.manifest import to_yaml

        typer.echo(to_yaml(workflow), nl=False)
    else:
        now = time.time()
        console = Console(highlight=False)
        console.print(Text(f"{run}: {summary(workflow, now)}", "bold"))
        console.print(table(rows(workflow, where.observe(workflow), now)))


@app.command()
def watch(
    run: RunName, workspace: Workspace = DEFAULT_WORKSPACE, on: OnOption = On.local, namespace: Namespace = None
) -> None:
    """Follow a run until it ends, whichever process drives it; the exit code says how it ended."""
    raise typer.Exit(place(on, workspace, namespace).watch(run))


@app.command()
def logs(
    run: RunName,
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="Default: every step, in order.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Print what a run's steps wrote to stdout and stderr."""
    for name, line in place(on, workspace, namespace).logs(run, step, follow):
        typer.echo(line if step else f"{name}: {line}")
