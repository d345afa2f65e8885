"""`posttrain report`: one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli.options import DEFAULT_WORKSPACE, RunName, Workspace, existing
from posttrain.contract.files import write_atomic
from posttrain.report import collect, render

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def report(
    run: RunName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: runs/RUN/report.html.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples to show.", min=0)] = 24,
) -> None:
    """Write one self-contained HTML page: graph and times, curves, scores before and after, samples, lineage."""
    root = existing(workspace)
    page = output or root / "runs" / run / "report.html"
    write_atomic(page, render(collect(root, run), samples=samples))
    typer.echo(page)
