"""Questions and what is found. Plain data.

Invariants: the set of statuses is closed; only `scored` has a reward. A wrong, missing or hostile answer of the policy
is scored; what is wrong with the question, the verifier or the machine is not, so that it never becomes a reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from posttrain.contract.digest import digest_value
from posttrain.reward.answers import AnswerForm


class Status(StrEnum):
    """`invalid_answer`: the expected answer, or the metadata, cannot be used by the verifier: a mistake of the data."""

    scored = "scored"
    invalid_answer = "invalid_answer"
    verifier_error = "verifier_error"
    timed_out = "timed_out"
    sandbox_error = "sandbox_error"
    not_found = "not_found"


FULL_MARKS = 1.0 - 1e-9
FINAL = (Status.scored, Status.invalid_answer)  # asked again, these come out the same


@dataclass(frozen=True)
class Question:
    """`answer` and `metadata` are the task's, and never shown to the policy; `completion` is the policy's."""

    verifier: str
    completion: str
    answer: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    form: AnswerForm = field(default_factory=AnswerForm)

    @property
    def digest(self) -> str:
        """Of all that decides the verdict but the verifier's version."""
        form = [self.form.tag, self.form.take, self.form.strict]
        return digest_value([self.verifier, self.completion, self.answer, dict(self.metadata), form])


@dataclass(frozen=True)
class Finding:
    """`reward` is a number if and only if `status` is `scored`. `correct` is full marks, None where there is no such
    thing; `components` are a composite's parts; `evidence` is what a person needs to see why."""

    status: Status
    reward: float | None = None
    correct: bool | None = None
    well_formed: bool | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.reward is not None) != (self.status is Status.scored):
            raise ValueError(f"{self.status} with the reward {self.reward}")


class Problem(Exception):
    """What a verifier raises to end without a reward."""

    def __init__(self, status: Status, detail: str, **evidence: Any):
        super().__init__(detail)
        self.status, self.detail, self.evidence = status, detail, evidence
