"""Whether a served model is the one that was evaluated: pure decisions over what it answered.

Invariant: a requirement that does not hold is one sentence that says what was asked for and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from posttrain.evaluation.schema import Result
from posttrain.evaluation.statistics import wilson
from posttrain.reward.score import Verdict
from posttrain.serving.client import Reply
from posttrain.serving.requirements import Requirements


@dataclass(frozen=True)
class Asked:
    """One prompt of the evaluation, asked again: what the evaluation recorded and what was served."""

    recorded: Result
    reply: Reply
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the answer is the recorded one; where neither holds an answer, the whole text."""
        if self.recorded.extracted is None and self.verdict.extracted is None:
            return self.recorded.completion == self.reply.text
        return self.recorded.extracted == self.verdict.extracted


@dataclass(frozen=True)
class Verification:
    """What was measured, and in `reasons` every requirement that does not hold. Empty where the release may go on."""

    accuracy: float
    recorded_accuracy: float
    agreement: float
    format_rate: float
    latency_p50_ms: float
    latency_p99_ms: float
    tokens_per_second: float
    reasons: tuple[str, ...]


def judge(
    asked: Sequence[Asked], repeated: Sequence[tuple[str, str]], seconds: float, requirements: Requirements, *,
    greedy: bool,
) -> Verification:  # fmt: skip
    """Weigh the answers. `repeated` are texts of the same prompt at temperature 0; `seconds` all of `asked` took;
    `greedy` whether the evaluation took the likeliest tokens."""
    count = len(asked)
    right, was_right = sum(a.verdict.correct for a in asked), sum(a.recorded.correct for a in asked)
    formed, was_formed = sum(a.verdict.well_formed for a in asked), sum(a.recorded.well_formed for a in asked)
    known = [a for a in asked if a.recorded.correct]
    latencies = np.array([a.reply.seconds for a in asked]) * 1000
    measured = Verification(
        accuracy=right / count,
        recorded_accuracy=was_right / count,
        agreement=sum(a.agrees for a in asked) / count,
        format_rate=formed / count,
        latency_p50_ms=float(np.percentile(latencies, 50)),
        latency_p99_ms=float(np.percentile(latencies, 99)),
        tokens_per_second=sum(a.reply.tokens for a in asked) / seconds,
        reasons=(),
    )
    reasons = []
    empty = sum(a.reply.tokens == 0 or a.reply.finish_reason not in ("stop", "length") for a in asked)
    if empty:
        reasons.append(f"{empty} of {count} answers are empty or broken off")
    changed = sum(first != second for first, second in repeated)
    if changed:
        reasons.append(f"{changed} of {len(repeated)} prompts had another answer the second time, at temperature 0")
    if greedy and measured.agreement < requirements.min_agreement:
        wanted = f"{requirements.min_agreement:.0%} are asked for"
        reasons.append(f"only {measured.agreement:.0%} of the answers are those of the evaluation, {wanted}")
    kept = sum(a.verdict.correct for a in known)
    if greedy and known and kept / len(known) < requirements.min_agreement:
        reasons.append(f"of {len(known)} prompts that the evaluation saw answered rightly, {kept} are now")
    interval = wilson(was_right, count, requirements.confidence)
    if not interval.low <= measured.accuracy <= interval.high:
        reasons.append(
            f"the accuracy of {measured.accuracy:.1%} is not within the evaluation's interval of "
            f"{interval.low:.1%} to {interval.high:.1%} on the same prompts"
        )
    least = requirements.min_well_formed or wilson(was_formed, count, requirements.confidence).low
    if measured.format_rate < least:
        reasons.append(f"only {measured.format_rate:.1%} of the answers are well formed, {least:.1%} are asked for")
    limit = requirements.max_latency_p99_ms
    if limit and measured.latency_p99_ms > limit:
        reasons.append(f"99 % of the answers took up to {measured.latency_p99_ms:.0f} ms, {limit:.0f} ms are allowed")
    return replace(measured, reasons=tuple(reasons))
