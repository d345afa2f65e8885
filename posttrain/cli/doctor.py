"""`posttrain doctor`: what will not work on this machine, and why."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.cli.options import DEFAULT_WORKSPACE, Workspace
from posttrain.doctor import checks

app = typer.Typer(pretty_exceptions_enable=False)

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@app.command()
def doctor(workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Look at the machine: what works, what works less well, what does not, and what to do about it. Ends with 1 if
    a run on this machine will not work."""
    found = checks(workspace)
    grid = Table.grid(padding=(0, 2))
    for check in found:
        mark, style = MARKS[check.state]
        grid.add_row(Text(mark, style), check.name, f"{check.found}: {check.advice}" if check.advice else check.found)
    Console(highlight=False).print(grid)
    if any(check.state == "fail" for check in found):
        raise typer.Exit(1)
