"""How outcomes stand to what Argo made of the same cases, and the table of agreement for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from posttrain.engine.conformance.compare import differences
from posttrain.engine.conformance.local import Outcome

JSON = dict[str, Any]

CARRIED = (
    "dag", "steps", "when", "fanout", "params", "vars", "expr", "script", "recursion", "templates", "retry", "timeout",
    "exit", "failfast", "daemon", "sidecar", "suspend", "operations", "artifacts", "volumes", "killed", "parallelism",
    "sync", "cron", "errors",
)  # fmt: skip
KINDS = ("agrees", "refused", "differs")


@dataclass(frozen=True)
class Verdict:
    """`kind` is one of KINDS. `lines` say how it differs, or why it was refused."""

    outcome: Outcome
    kind: str
    lines: tuple[str, ...] = ()


def judge(outcome: Outcome, expected: JSON | None = None) -> Verdict:
    """How an outcome stands to `expected`: by default, to the result that was recorded with the case."""
    expected = outcome.case.expected or {} if expected is None else expected
    rejected = expected.get("lint", {}).get("ok") is False
    if outcome.refused:
        return Verdict(outcome, "agrees" if rejected else "refused", (outcome.refused,))
    if "broken" in outcome.result:
        return Verdict(outcome, "differs", (outcome.result["broken"].strip().splitlines()[-1],))
    if rejected:
        return Verdict(outcome, "differs", (f"Argo refuses it: {expected['lint'].get('error')}",))
    found = tuple(differences(outcome.result, expected))
    return Verdict(outcome, "differs" if found else "agrees", found)


def as_expected(outcome: Outcome) -> JSON:
    """An outcome in the form of a recorded result, so that another engine's can be held against it.

    What is known to differ from run to run is left out here too.
    """
    if outcome.refused:
        return {"lint": {"ok": False, "error": outcome.refused}}
    return outcome.result | {"volatile": outcome.case.volatile}


def table(verdicts: Iterable[Verdict]) -> Table:
    """Agreement by topic; the topics that the engine carries come first."""
    grid = Table(box=None, pad_edge=False, header_style="bold", show_footer=True)
    by_topic: dict[str, list[str]] = {}
    for one in verdicts:
        by_topic.setdefault(one.outcome.case.topic, []).append(one.kind)
    every = [kind for kinds in by_topic.values() for kind in kinds]
    grid.add_column("topic", footer="all")
    grid.add_column("cases", footer=str(len(every)), justify="right")
    for heading, kind in zip(("agree", "refused", "differ"), KINDS, strict=True):
        grid.add_column(heading, footer=str(every.count(kind)), justify="right")
    for topic, kinds in sorted(by_topic.items(), key=lambda one: (one[0] not in CARRIED, one[0])):
        grid.add_row(topic, str(len(kinds)), *(str(kinds.count(kind) or "") for kind in KINDS))
    return grid


def explanations(verdicts: Iterable[Verdict], reasons: Mapping[str, str] | None = None) -> Iterator[str]:
    """Lines on every case that does not agree: how, and the reason where one is known."""
    for one in sorted(verdicts, key=lambda one: one.outcome.case.name):
        if one.kind != "agrees":
            name = one.outcome.case.name
            yield f"{name}: {one.kind}"
            yield from (f"    {line}" for line in one.lines)
            if reasons and name in reasons:
                yield f"    reason: {reasons[name]}"
