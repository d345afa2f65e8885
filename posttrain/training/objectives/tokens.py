"""What goes into an objective and what comes out.

Letters: P positions with loss of a micro-batch, S its sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch

Entropy = Literal["none", "measured", "trained"]  # of the policy, whether it is computed; measured: without gradient


@dataclass(frozen=True, eq=False)
class Policy:
    """What the model says of the tokens now, with gradient."""

    logprobs_P: torch.Tensor
    entropy_P: torch.Tensor | None = None  # of the distribution each token was drawn from, in nats
    values_P: torch.Tensor | None = None  # a critic's, of the text before each token


@dataclass(frozen=True, eq=False)
class Experience:
    """What is known of the tokens besides: `sequence_P` (int64), which of the `sequences` each is of, and signals.

    A signal is a float32 [P] without gradient. Those that objectives here know: `advantages`; `old_logprobs`, of the
    policy that ratios are taken to (absent: the policy itself, before the update); `sampler_logprobs`, as the sampler
    computed them; `reference_logprobs`; `old_values` and `returns` with a critic. One's own objective may use others.

    Of preference pairs the sequences 2k and 2k+1 are the chosen and the rejected one.
    """

    sequence_P: torch.Tensor
    sequences: int
    signals: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> torch.Tensor:
        """The signal of that name. Raises ValueError where it was not given."""
        if name not in self.signals:
            raise ValueError(f"the objective needs {name}, which was not given")
        return self.signals[name]

    def __contains__(self, name: str) -> bool:
        return name in self.signals

    def with_signal(self, name: str, values_P: torch.Tensor) -> Experience:
        return replace(self, signals={**self.signals, name: values_P})

    def sum_S(self, values_P: torch.Tensor) -> torch.Tensor:
        """[S]: summed over each sequence."""
        return values_P.new_zeros(self.sequences).index_add(0, self.sequence_P, values_P)

    def mean_S(self, values_P: torch.Tensor) -> torch.Tensor:
        """[S]: the mean over each sequence's tokens; 0 for one that has none."""
        return self.sum_S(values_P) / self.lengths_S.clamp(min=1)

    def spread_P(self, values_S: torch.Tensor) -> torch.Tensor:
        """[P]: each token with its sequence's value."""
        return values_S.index_select(0, self.sequence_P)

    @property
    def lengths_S(self) -> torch.Tensor:
        """[S]: tokens of each sequence."""
        return self.sum_S(torch.ones_like(self.sequence_P))


class Mean(NamedTuple):
    """A mean that adds up over micro-batches and ranks: what was summed, and over how many."""

    total: torch.Tensor
    weight: torch.Tensor

    @classmethod
    def of(cls, values: torch.Tensor) -> Mean:
        """Over all of `values` ([P] for tokens, [S] for sequences)."""
        values = values.detach().double()
        return cls(values.sum(), values.new_full((), values.numel()))


Metrics = Mapping[str, Mean]
NO_METRICS: Metrics = MappingProxyType({})


class Loss(NamedTuple):
    """A loss for each token [P], not yet a mean, and what there is to be reported of it."""

    tokens_P: torch.Tensor
    metrics: Metrics = NO_METRICS


class Total(NamedTuple):
    """Of a micro-batch: its loss, summed, with gradient; the caller divides by the normaliser of the update."""

    loss: torch.Tensor
    metrics: Metrics


def add(parts: Iterable[Metrics]) -> Metrics:
    """The metrics of several micro-batches as one. All have the same names."""
    total: dict[str, Mean] = {}
    for part in parts:
        for name, mean in part.items():
            total[name] = Mean(*(a + b for a, b in zip(total[name], mean, strict=True))) if name in total else mean
    return total


def reported(metrics: Metrics) -> dict[str, float]:
    """The means; `effective_samples`, the share that weights leave (Kish), where ratios and their squares are there."""
    means = {name: float(mean.total / mean.weight) for name, mean in metrics.items() if mean.weight > 0}
    squared = means.pop("ratio_squared", 0.0)
    if squared:
        means["effective_samples"] = means["ratio"] ** 2 / squared
    return means
