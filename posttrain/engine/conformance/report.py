"""The table of agreement, for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from posttrain.engine.conformance.compare import differences
from posttrain.engine.conformance.local import Outcome

CARRIED = (
    "dag", "steps", "when", "fanout", "params", "vars", "expr", "script", "recursion", "templates", "retry", "timeout",
    "exit", "failfast", "daemon", "sidecar", "suspend", "operations", "artifacts", "volumes", "killed", "parallelism",
    "sync", "cron", "errors",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """`kind`: agrees, refused, differs. `lines` say how it differs, or why it was refused."""

    outcome: Outcome
    kind: str
    lines: tuple[str, ...] = ()


def judge(outcome: Outcome) -> Verdict:
    """How an outcome stands to the recorded result."""
    expected = outcome.case.expected or {}
    rejected = expected.get("lint", {}).get("ok") is False
    if outcome.refused:
        ours = (outcome.refused,)
        if rejected:
            return Verdict(outcome, "agrees", ours)
        return Verdict(outcome, "refused", ours)
    if "broken" in outcome.result:
        return Verdict(outcome, "differs", (outcome.result["broken"].strip().splitlines()[-1],))
    if rejected:
        return Verdict(outcome, "differs", (f"Argo refuses it: {expected['lint'].get('error')}",))
    found = tuple(differences(outcome.result, expected))
    return Verdict(outcome, "differs" if found else "agrees", found)


def table(verdicts: Iterable[Verdict], reasons: Mapping[str, str] | None = None) -> str:
    """Agreement by topic, then every case that differs or was refused, with its reason where one is known."""
    by_topic: dict[str, list[Verdict]] = {}
    for one in sorted(verdicts, key=lambda one: one.outcome.case.name):
        by_topic.setdefault(one.outcome.case.topic, []).append(one)
    lines = [f"{'topic':<14} {'cases':>5} {'agree':>5} {'refused':>7} {'differ':>6}"]
    total = [0, 0, 0, 0]
    for topic, verdicts_ in sorted(by_topic.items(), key=lambda one: (one[0] not in CARRIED, one[0])):
        kinds = [one.kind for one in verdicts_]
        row = [len(kinds), kinds.count("agrees"), kinds.count("refused"), kinds.count("differs")]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"{topic:<14} {row[0]:>5} {row[1]:>5} {row[2]:>7} {row[3]:>6}")
    lines.append(f"{'all':<14} {total[0]:>5} {total[1]:>5} {total[2]:>7} {total[3]:>6}")
    for verdicts_ in by_topic.values():
        for one in verdicts_:
            if one.kind != "agrees":
                name = one.outcome.case.name
                lines.append(f"\n{name}: {one.kind}")
                lines += [f"    {line}" for line in one.lines]
                if reasons and name in reasons:
                    lines.append(f"    reason: {reasons[name]}")
    return "\n".join(lines)
