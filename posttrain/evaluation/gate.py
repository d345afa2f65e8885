"""The gate: whether a candidate may go on, judged against its baseline on the same prompts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.evaluation.schema import Result
from posttrain.evaluation.settings import GatePolicy
from posttrain.evaluation.statistics import Estimate, paired_bootstrap
from posttrain.evaluation.summary import scores


class GateFailed(UserError):
    """The candidate is worse than allowed: nothing is wrong with the configuration."""

    exit_code = 1


@dataclass(frozen=True)
class Decision:
    """`reasons` say why the candidate may not go on; empty where it may."""

    difference: Estimate
    baseline: float
    candidate: float
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> str:
        d = self.difference
        compared = (
            f"accuracy {self.baseline:.1%} -> {self.candidate:.1%} "
            f"({d.value * 100:+.1f} points, interval {d.low * 100:+.1f} to {d.high * 100:+.1f})"
        )
        return f"{'failed' if self.reasons else 'passed'}: {compared}" + "".join(f"; {r}" for r in self.reasons)


def decide(baseline: Sequence[Result], candidate: Sequence[Result], policy: GatePolicy, *, seed: int) -> Decision:
    """Compare two evaluations of one set, prompt by prompt.

    Raises UserError where the prompts or their answers are not the same: such scores cannot be compared.
    """
    before, after = _by_prompt(baseline), _by_prompt(candidate)
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise UserError(
            f"baseline and candidate answered other prompts ({len(odd)} differ)", field="gate.candidate", value=odd[0],
            remedy="evaluate both on the same set",
        )  # fmt: skip
    keys = list(before)
    difference = paired_bootstrap(
        [before[k] for k in keys], [after[k] for k in keys], seed=seed,
        resamples=policy.resamples, confidence=policy.confidence,
    )  # fmt: skip
    measured = scores(candidate, policy.confidence)
    accuracy, form = measured["accuracy"], measured["format_rate"]
    reached = difference.value if policy.evidence == "point" else difference.low
    what = "the difference" if policy.evidence == "point" else "the difference's lower end"
    reasons = []
    if reached < policy.min_difference:
        reasons.append(
            f"{what} of {reached * 100:+.1f} points is below the {policy.min_difference * 100:+.1f} asked for"
        )
    if accuracy < policy.min_accuracy:
        reasons.append(f"the accuracy of {accuracy:.1%} is below the {policy.min_accuracy:.1%} asked for")
    if form < policy.min_format_rate:
        reasons.append(f"the format rate of {form:.1%} is below the {policy.min_format_rate:.1%} asked for")
    return Decision(difference, scores(baseline, policy.confidence)["accuracy"], accuracy, tuple(reasons))


def _by_prompt(results: Sequence[Result]) -> dict[tuple[str, str, str], float]:
    """The rate of right samples of each prompt; a prompt is its id, its text and its answer."""
    counts: dict[tuple[str, str, str], list[bool]] = {}
    for r in results:
        counts.setdefault((r.id, r.messages, r.answer), []).append(r.correct)
    return {key: sum(right) / len(right) for key, right in counts.items()}
