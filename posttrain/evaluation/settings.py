"""What an evaluation is told: how to sample, and how the gate decides. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.units import at_least, within


@dataclass
class Sampling:
    """`temperature` 0 takes the likeliest token each time; more than one sample then makes no sense."""

    samples: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 128

    def __post_init__(self) -> None:
        for name in ("samples", "max_tokens"):
            at_least(f"sampling.{name}", getattr(self, name), 1)
        within("sampling.temperature", self.temperature, 0, 10)
        if not 0 < self.top_p <= 1:
            raise UserError("must lie in (0, 1]", field="sampling.top_p", value=self.top_p)
        if self.samples > 1 and self.temperature == 0:
            remedy = "set sampling.temperature, or ask for one sample"
            raise UserError(
                "would be equal at temperature 0", field="sampling.samples", value=self.samples, remedy=remedy
            )


@dataclass
class GatePolicy:
    """What a candidate must reach, in shares of 1.

    `min_difference` is the candidate's accuracy less the baseline's: negative for a loss that is allowed, positive
    for a gain that is asked for. With `evidence` "point" the measured difference must reach it; with "interval" the
    lower end of its confidence interval must.
    """

    min_difference: float = -0.02
    evidence: str = "point"
    min_accuracy: float = 0.0
    min_format_rate: float = 0.0
    confidence: float = 0.95
    resamples: int = 10_000

    def __post_init__(self) -> None:
        within("gate.min_difference", self.min_difference, -1, 1)
        if self.evidence not in ("point", "interval"):
            remedy = "write point or interval"
            raise UserError("is no evidence", field="gate.evidence", value=self.evidence, remedy=remedy)
        for name in ("min_accuracy", "min_format_rate"):
            within(f"gate.{name}", getattr(self, name), 0, 1)
        check_confidence(self.confidence, "gate.confidence")
        at_least("gate.resamples", self.resamples, 100)


def check_confidence(value: float, field: str) -> None:
    if not 0.5 <= value < 1:
        raise UserError("must lie in [0.5, 1)", field=field, value=value, remedy="write 0.95, say")
