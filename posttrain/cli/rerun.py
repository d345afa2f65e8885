"""`posttrain rerun`: one step again from its record, and whether the same comes out."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Annotated

import typer

from posttrain.cli.embedded import Embedded
from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, RunName, Workspace, existing
from posttrain.engine import load
from posttrain.errors import UserError
from posttrain.rerun import Comparison, compare, find_record, next_name, surroundings
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def rerun(
    run: RunName,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Name of the step, as in `posttrain get RUN`.")],
    check: Annotated[bool, typer.Option("--check", help="End with 1 unless every output came out the same.")] = False,
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Start one step again with the inputs, configuration and seed of its record, under the name RUN-rerun-N, and
    say for each output whether it is the same. Nothing of RUN is touched."""
    from workflows.templates.route import single

    root = existing(workspace)
    before = find_record(root, run, step)
    spec = import_module(before.package).SPEC
    if spec.kind == "service":
        raise UserError("is a service: it has no outputs to compare", field="STEP", value=step)
    chosen = load_profile(profile)
    name = next_name(root, run)
    workflow = single(
        spec, chosen, run=name, step=before.step, seed=before.seed, config=before.config, inputs=before.inputs
    )
    ended = Embedded(root, chosen).start(load(workflow.to_dict()))
    if ended:
        raise typer.Exit(ended)
    now = find_record(root, name, before.step)
    _show(surroundings(before, now), "surroundings")
    outputs = compare(before, now)
    _show(outputs, "outputs")
    different = [c.name for c in outputs if c.verdict == "differs"]
    typer.echo(
        f"{len(different)} of {len(outputs)} outputs differ: {', '.join(different)}"
        if different
        else "every output is the same"
    )
    if check and different:
        raise typer.Exit(1)


def _show(comparisons: list[Comparison], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"same": "green", "differs": "red", "measured": "dim"}
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False)
    for c in comparisons:
        shown = _brief(c.now) if c.verdict == "same" else f"{_brief(c.before)} → {_brief(c.now)}"
        grid.add_row(c.name, Text(c.verdict, styles[c.verdict]), shown)
    Console(highlight=False, soft_wrap=True).print(grid)


def _brief(value: object) -> str:
    """A value with its digest cut to what tells it from others."""
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}", r"\1…", str(value))
