"""`posttrain report`: one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posttrain.argo.workspace import fetched
from posttrain.cli.options import DEFAULT_WORKSPACE, RunName, Workspace, existing
from posttrain.cli.places import Namespace, On, OnOption, Remote
from posttrain.contract.files import write_atomic
from posttrain.errors import UserError
from posttrain.report import collect, render

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def report(
    run: RunName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Default: runs/RUN/report.html, of a cluster's run RUN.html."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples to show.", min=0)] = 24,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Write one self-contained HTML page: graph and times, curves, scores before and after, samples, lineage."""
    if on is On.cluster:
        cluster = Remote(namespace).cluster
        workflow = cluster.get(run)
        page = output or Path(f"{run}.html")
        with fetched(cluster, workflow, [f"runs/{run}"]) as root:
            found = collect(root, run, workflow=workflow)
    else:
        root = existing(workspace)
        page = output or root / "runs" / run / "report.html"
        found = collect(root, run)
    try:
        write_atomic(page, render(found, samples=samples))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise UserError(f"cannot be written: {why}", field="--output", value=str(page)) from None
    typer.echo(page)
