"""Batches of tokens for the tests of objectives, in float64, and an objective's value and gradients on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from posttrain.training.objectives.build import Objective
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.objectives.tokens import Experience, Metrics, Policy, add

SAMPLED = [name for name, kind in KINDS.items() if kind.samples]
SIGNALS = (
    "advantages", "old_logprobs", "sampler_logprobs", "reference_logprobs", "old_values", "returns",
)  # fmt: skip


def config(name: str, **settings: Any) -> ObjectiveConfig:
    """With what the objective of that name cannot be without."""
    return ObjectiveConfig(name, **({"length": 9} if name == "dr_grpo" else {}), **settings)


@dataclass(frozen=True)
class Batch:
    """Sequences of `lengths` tokens, one behind another. Leaves: logprobs_P, entropy_P, values_P."""

    lengths: tuple[int, ...]
    logprobs_P: torch.Tensor
    entropy_P: torch.Tensor
    values_P: torch.Tensor
    signals: dict[str, torch.Tensor]

    @property
    def leaves(self) -> list[torch.Tensor]:
        return [self.logprobs_P, self.entropy_P, self.values_P]

    def tokens_of(self, sequence: int) -> range:
        start = sum(self.lengths[:sequence])
        return range(start, start + self.lengths[sequence])

    def without(self, *names: str) -> Batch:
        return replace(self, signals={name: values for name, values in self.signals.items() if name not in names})

    def with_signals(self, **signals: torch.Tensor) -> Batch:
        return replace(self, signals=self.signals | signals)


def batch(lengths: Sequence[int], *, seed: int = 0, noise: float = 0.5) -> Batch:
    """Random numbers; ratios far enough from 1 that every bound is met on both sides."""
    chance = torch.Generator().manual_seed(seed)
    count = sum(lengths)

    def normal(scale: float = 1.0) -> torch.Tensor:
        return torch.randn(count, generator=chance, dtype=torch.float64) * scale

    logprobs_P = -normal().abs() - 0.1
    sequences = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    signals = {
        "old_logprobs": logprobs_P + normal(noise),
        "sampler_logprobs": logprobs_P + normal(noise),
        "reference_logprobs": logprobs_P + normal(noise),
        "old_values": normal(),
        "returns": normal(),
    }
    leaves = [part.requires_grad_() for part in (logprobs_P, normal().abs(), normal())]
    # Last, so that a sequence more without tokens does not change the numbers of the others.
    signals["advantages"] = torch.randn(len(lengths), generator=chance, dtype=torch.float64)[sequences]
    return Batch(tuple(lengths), *leaves, signals)


def micro_batch(made: Batch, members: Sequence[int]) -> tuple[Policy, Experience]:
    """The sequences `members` of the batch as one micro-batch."""
    places = [place for sequence in members for place in made.tokens_of(sequence)]
    taken = torch.tensor(places, dtype=torch.int64)
    owners = [index for index, sequence in enumerate(members) for _ in made.tokens_of(sequence)]
    experience = Experience(
        torch.tensor(owners, dtype=torch.int64), len(members),
        {name: values[taken] for name, values in made.signals.items()},
    )  # fmt: skip
    return Policy(made.logprobs_P[taken], made.entropy_P[taken], made.values_P[taken]), experience


def outcome(
    objective: Objective, made: Batch, parts: Sequence[Sequence[int]] | None = None
) -> tuple[torch.Tensor, list[torch.Tensor], Metrics]:
    """The update's loss, its gradient by each leaf, and its metrics, from the micro-batches `parts`."""
    parts = parts if parts is not None else [range(len(made.lengths))]
    totals = [objective(*micro_batch(made, part)) for part in parts]
    held = [length for length in made.lengths if length]
    loss = torch.stack([total.loss for total in totals]).sum() / objective.normaliser(
        tokens=sum(held), sequences=len(held)
    )
    return loss.detach(), gradients(loss, made), add(total.metrics for total in totals)


def gradients(loss: torch.Tensor, made: Batch) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, made.leaves, allow_unused=True, materialize_grads=True))
