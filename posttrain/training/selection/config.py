"""Settings of the selection of samples. Imports nothing heavy: specs of steps are made of these."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.errors import UserError
from posttrain.training.config import one_of
from posttrain.units import at_least, within


@dataclass
class SampleSelection:
    spread: bool = True  # leave groups of equal raw rewards out: they teach nothing (DAPO's dynamic sampling)
    passes_at: float = 1.0  # the raw reward from which a sample has passed
    pass_rate: list[float] = field(default_factory=lambda: [0.0, 1.0])  # of the groups that are kept, both included
    truncated: str = "keep"  # samples that were cut off at the sampler's limit: keep | drop
    min_tokens: int = 1
    max_tokens: int = 0  # 0: no limit
    groups: int = 0  # groups of an update, of those that pass the first that came; 0: all
    per_group: int = 0  # samples of a group, those whose rewards differ most (PODS, 2504.13818); 0: all
    negatives: float = 1.0  # share of the samples with a negative advantage that is kept
    negative_weight: float = 1.0  # which their advantages are multiplied by

    def __post_init__(self) -> None:
        if len(self.pass_rate) != 2 or not 0 <= self.pass_rate[0] <= self.pass_rate[1] <= 1:
            reason = "must be the least and the largest share, as in [0.1, 0.9]"
            raise UserError(reason, field="selection.pass_rate", value=list(self.pass_rate))
        one_of("selection.truncated", self.truncated, "keep", "drop")
        for name, least in (("min_tokens", 1), ("max_tokens", 0), ("groups", 0), ("per_group", 0)):
            at_least(f"selection.{name}", getattr(self, name), least)
        if self.max_tokens and self.max_tokens < self.min_tokens:
            raise UserError("is less than min_tokens", field="selection.max_tokens", value=self.max_tokens)
        within("selection.negatives", self.negatives, 0, 1)
        at_least("selection.negative_weight", self.negative_weight, 0)
