"""`posttrain demo`: what `make demo` runs. Post-trains the real small model and says what it gained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from posttrain.cli.embedded import Embedded
from posttrain.cli.options import DEFAULT_WORKSPACE, Workspace
from posttrain.contract.record import read
from workflows.definition import define

app = typer.Typer(pretty_exceptions_enable=False)

RUN = "demo"


@app.command()
def demo(workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Post-train a 135M-parameter model on short arithmetic, on this machine, in about ten minutes. Interrupted, it
    goes on where it was; ended, it shows the result again."""
    root = workspace.absolute()
    definition = define("sft", "laptop", preset="demo")
    embedded = Embedded(root, definition.profile)
    started = embedded.engine.exists(RUN)
    ended = embedded.drive(RUN) if started else embedded.run(definition, RUN)
    if ended:
        raise typer.Exit(ended)
    for line in summary(root, RUN):
        typer.echo(line)


def summary(workspace: Path, run: str) -> list[str]:
    """What the run gained, where its report is, how to talk to its model."""
    before, after, gate, report = (_outputs(workspace, run, s) for s in ("baseline", "evaluate", "gate", "report"))
    verify, trained = (_outputs(workspace, run, step) for step in ("verify", "sft"))
    return [
        "",
        f"before   {_score(before)}",
        f"after    {_score(after)}",
        f"gained   {100 * gate['difference']:+.1f} points"
        f" (95 % interval of the pairs {100 * gate['low']:+.1f} to {100 * gate['high']:+.1f})",
        f"trained  {trained['updates']} updates, {trained['tokens']} tokens, loss {trained['loss']:.3f}",
        f"served   {100 * verify['served_accuracy']:.1f} % through HTTP, p50 {verify['latency_p50_ms']:.0f} ms:"
        f" {verify['verdict']}",
        "",
        f"report   {workspace / report['page']}",
        f"talk     bin/posttrain serve {run} -w {workspace}",
    ]


def _score(outputs: dict[str, Any]) -> str:
    value, low, high = (100 * outputs[k] for k in ("accuracy", "accuracy_low", "accuracy_high"))
    return f"{value:5.1f} % (95 % interval {low:.1f} to {high:.1f}, {outputs['rows']} problems)"


def _outputs(workspace: Path, run: str, step: str) -> dict[str, Any]:
    found = read(workspace / "runs" / run / step)
    assert found is not None, f"{step} ended without a record"
    return found.outputs
