"""`posttrain conformance`: does this machine's engine do with a manifest what Argo does?"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from posttrain.argo import connect
from posttrain.cli.places import Namespace
from posttrain.contract.record import ROOT
from posttrain.engine.conformance import (
    Case,
    Outcome,
    as_expected,
    busybox_image,
    explanations,
    find_cases,
    judge,
    run_all,
    run_all_on_cluster,
    table,
)
from posttrain.engine.settings import EngineSettings
from posttrain.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)

OWN = ROOT / "tests" / "engine" / "conformance" / "cases"


class Side(StrEnum):
    local = "local"
    cluster = "cluster"
    both = "both"


TITLES = {
    Side.local: "this machine's engine against what was recorded of Argo",
    Side.cluster: "the cluster's Argo against what was recorded of Argo",
    Side.both: "this machine's engine against the cluster's Argo",
}


@app.command()
def conformance(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Manifests, or one. Default: those of the project.")
    ] = OWN,
    on: Annotated[
        Side, typer.Option("--on", help="local and cluster: against recorded results; both: against each other.")
    ] = Side.local,
    namespace: Namespace = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Service account of workflows that name none, on the cluster.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Cases at once.", min=1)] = 8,
) -> None:
    """Run manifests, compare node by node, and print a table of agreement. Ends with 1 where something differs without
    a reason. Each manifest is a case: its first lines may say what an operator does meanwhile, as in `# operations:
    after 5s stop`, and DIR/../results/TOPIC/NAME.json holds what was recorded of DIR/TOPIC/NAME.yaml."""
    cases = _cases(directory, recorded=on is not Side.both)
    console = Console(highlight=False)
    outcomes: dict[str, Outcome] = {}
    expected = {}
    if on is not Side.local:
        remote = run_all_on_cluster(
            cases, connect(namespace=namespace), namespace=namespace, account=account, jobs=jobs
        )
        outcomes = _gathered(remote, len(cases), "cluster", console)
    if on is Side.both:
        expected = {name: as_expected(outcome) for name, outcome in outcomes.items()}
    if on is not Side.cluster:
        with TemporaryDirectory(prefix="conformance-") as scratch:
            settings = EngineSettings(images=busybox_image(Path(scratch)))
            outcomes = _gathered(run_all(cases, settings, jobs=jobs), len(cases), "local", console)
    verdicts = [judge(outcome, expected.get(name)) for name, outcome in outcomes.items()]
    reasons = _reasons(directory)
    console.print(TITLES[on], table(verdicts), sep="\n")
    for line in explanations(verdicts, reasons):
        console.print(line, markup=False, soft_wrap=True)
    if any(one.kind == "differs" and one.outcome.case.name not in reasons for one in verdicts):
        raise typer.Exit(1)


def _cases(directory: Path, *, recorded: bool) -> list[Case]:
    if not directory.exists():
        raise UserError("no such file or directory", field="DIR", value=str(directory))
    cases = find_cases(directory)
    if not cases:
        raise UserError("holds no manifest", field="DIR", value=str(directory), remedy="a case is a .yaml file")
    lacking = [one.name for one in cases if one.expected is None]
    if recorded and lacking:
        raise UserError("has no recorded result", field=lacking[0], remedy="compare with a cluster: --on both")
    return cases


def _gathered(outcomes: Iterable[Outcome], count: int, name: str, console: Console) -> dict[str, Outcome]:
    shown = track(outcomes, f"{name:8}", total=count, console=console, transient=True)
    return {outcome.case.name: outcome for outcome in shown}


def _reasons(directory: Path) -> dict[str, str]:
    """Differences that are known, by case: the file differences.toml beside the directory of the cases."""
    for place in (directory, *directory.resolve().parents[:3]):
        file = place / "differences.toml"
        if file.is_file():
            return tomllib.loads(file.read_text(encoding="utf-8")).get("differs", {})
    return {}
