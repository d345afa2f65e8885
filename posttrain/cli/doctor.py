"""`posttrain doctor`: what will not work on this machine, and why."""

from __future__ import annotations

import typer

from posttrain.cli.examine import examine
from posttrain.cli.options import DEFAULT_WORKSPACE, Workspace

app = typer.Typer(pretty_exceptions_enable=False)

MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "bad": ("✗", "red")}


@app.command()
def doctor(workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Look at the machine: what works, what works less well, what does not, and how to mend it. Ends with 1 if
    something that a run on this machine needs does not work."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    findings = examine(workspace.absolute())
    grid = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = MARKS[finding.state]
        said = finding.says if finding.state == "ok" or not finding.remedy else f"{finding.says}; {finding.remedy}"
        grid.add_row(Text(mark, style), finding.name, said)
    Console(highlight=False).print(grid)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)
