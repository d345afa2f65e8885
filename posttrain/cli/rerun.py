"""`posttrain rerun`: one step again from its record, and whether the same comes out."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from posttrain.argo.again import again
from posttrain.argo.workspace import fetched
from posttrain.cli.embedded import Embedded
from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, RunName, Workspace, existing
from posttrain.cli.places import Namespace, On, OnOption, Remote
from posttrain.contract.record import Record
from posttrain.engine import load
from posttrain.errors import UserError
from posttrain.rerun import Comparison, compare, find_record, next_name, surroundings
from workflows.profile import Profile, load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def rerun(
    run: RunName,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Name of the step, as in `posttrain get RUN`.")],
    check: Annotated[bool, typer.Option("--check", help="End with 1 unless every output came out the same.")] = False,
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Start one step again with the inputs, configuration and seed that it had, under the name RUN-rerun-N (on a
    cluster: with its own manifest, under a generated name), and say for each output whether it is the same. Nothing of
    RUN is touched."""
    if on is On.cluster:
        before, now = _on_cluster(run, step, namespace)
    else:
        before, now = _here(existing(workspace), run, step, load_profile(profile))
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


def _here(root: Path, run: str, step: str, profile: Profile) -> tuple[Record, Record]:
    from workflows.templates.route import single

    before = find_record(root, run, step)
    spec = import_module(before.package).SPEC
    if spec.kind == "service":
        raise UserError("is a service: it has no outputs to compare", field="STEP", value=step)
    name = next_name(root, run)
    inputs = before.inputs | dict.fromkeys(spec.live_inputs(), "")
    workflow = single(spec, profile, run=name, step=before.step, seed=before.seed, config=before.config, inputs=inputs)
    if ended := Embedded(root, profile).start(load(workflow.to_dict())):
        raise typer.Exit(ended)
    return before, find_record(root, name, before.step)


def _on_cluster(run: str, step: str, namespace: str | None) -> tuple[Record, Record]:
    remote = Remote(namespace)
    workflow = remote.get(run)
    name = remote.cluster.create(again(workflow, step))["metadata"]["name"]
    typer.echo(f"submitted Workflow {name} to {remote.cluster.where}")
    if ended := remote.watch(name):
        raise typer.Exit(ended)
    directory = step.replace("-", "_")
    with fetched(remote.cluster, workflow, [f"runs/{one}/{directory}" for one in (run, name)]) as root:
        return find_record(root, run, step), find_record(root, name, step)


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
