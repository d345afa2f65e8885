"""Every objective as its paper's formula reads: loops over samples and tokens, on single numbers in float64.

Nothing is shared with the product, not even a helper: bounds are cases, means are sums that are divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tests.training.objectives.support import Batch

Number = torch.Tensor | float


def held(log_ratio: torch.Tensor) -> torch.Tensor:
    if log_ratio > 20:
        return torch.tensor(20.0, dtype=torch.float64)
    if log_ratio < -20:
        return torch.tensor(-20.0, dtype=torch.float64)
    return log_ratio


def surrogate(ratio: torch.Tensor, advantage: Number, low: float, high: float) -> Number:
    if advantage > 0 and ratio > 1 + high:
        return -(1 + high) * advantage
    if advantage < 0 and ratio < 1 - low:
        return -(1 - low) * advantage
    return -ratio * advantage


def mean(numbers: list[Number]) -> Number:
    return sum(numbers) / len(numbers)


class Sample:
    """The tokens of one sequence as lists of numbers."""

    def __init__(self, made: Batch, sequence: int):
        places = made.tokens_of(sequence)
        self.logprobs = [made.logprobs_P[t] for t in places]
        self.entropies = [made.entropy_P[t] for t in places]
        self.values = [made.values_P[t] for t in places]
        self.signals = {name: [values[t] for t in places] for name, values in made.signals.items()}
        self.advantages = list(self.signals["advantages"])
        if "old_logprobs" not in self.signals:
            self.signals["old_logprobs"] = [logprob.detach() for logprob in self.logprobs]

    def __len__(self) -> int:
        return len(self.logprobs)

    def log_ratios(self, to: str = "old_logprobs") -> list[torch.Tensor]:
        return [held(new - old) for new, old in zip(self.logprobs, self.signals[to], strict=True)]

    def correct(self, mode: str, level: str, low: float, high: float) -> None:
        """Weigh the advantages by the ratio of trainer to sampler."""
        pairs = zip(self.signals["old_logprobs"], self.signals["sampler_logprobs"], strict=True)
        logs = [float(held(old - sampled)) for old, sampled in pairs]
        if level == "sequence":
            logs = [max(-20.0, min(20.0, sum(logs)))] * len(logs)
        for t, log in enumerate(logs):
            weight = math.exp(log)
            if mode == "truncate":
                weight = max(low, min(high, weight))
            elif not low <= weight <= high:
                weight = 0.0
            self.advantages[t] = self.advantages[t] * weight


def samples_of(made: Batch) -> list[Sample]:
    return [Sample(made, sequence) for sequence in range(len(made.lengths)) if made.lengths[sequence]]


# Each gives the loss of every token of a sample.


def clip_at_tokens(sample: Sample, low: float, high: float) -> list[Number]:
    return [
        surrogate(log.exp(), advantage, low, high)
        for log, advantage in zip(sample.log_ratios(), sample.advantages, strict=True)
    ]


def grpo(sample: Sample) -> list[Number]:
    return clip_at_tokens(sample, 0.2, 0.2)


def dapo(sample: Sample) -> list[Number]:
    return clip_at_tokens(sample, 0.2, 0.28)


def gspo(sample: Sample) -> list[Number]:
    ratio = (sum(sample.log_ratios()) / len(sample)).exp()
    return [surrogate(ratio, advantage, 3e-4, 4e-4) for advantage in sample.advantages]


def rloo(sample: Sample) -> list[Number]:
    ratio = held(sum(sample.log_ratios())).exp()
    return [surrogate(ratio, advantage, 0.2, 0.2) for advantage in sample.advantages]


def cispo(sample: Sample) -> list[Number]:
    return [
        -min(5.0, math.exp(log.detach())) * advantage * logprob
        for log, advantage, logprob in zip(sample.log_ratios(), sample.advantages, sample.logprobs, strict=True)
    ]


def reinforce(sample: Sample) -> list[Number]:
    return [-a * logprob for a, logprob in zip(sample.advantages, sample.logprobs, strict=True)]


def topr(sample: Sample) -> list[Number]:
    ratio = math.exp(held(sum(sample.log_ratios())).detach())
    return [
        -(min(1.0, ratio) if advantage < 0 else 1.0) * advantage * logprob
        for advantage, logprob in zip(sample.advantages, sample.logprobs, strict=True)
    ]


def ppo(sample: Sample) -> list[Number]:
    losses = clip_at_tokens(sample, 0.2, 0.2)
    for t, (value, old, target) in enumerate(
        zip(sample.values, sample.signals["old_values"], sample.signals["returns"], strict=True)
    ):
        errors = [(value - target) ** 2]
        if value - old > 0.2:
            errors.append((old + 0.2 - target) ** 2)
        elif value - old < -0.2:
            errors.append((old - 0.2 - target) ** 2)
        losses[t] = losses[t] + 0.1 * max(errors) / 2
    return losses


def cross_entropy(sample: Sample) -> list[Number]:
    return [-logprob for logprob in sample.logprobs]


def over_tokens(losses: list[list[Number]]) -> Number:
    return mean([loss for sample in losses for loss in sample])


def over_samples(losses: list[list[Number]]) -> Number:
    return mean([mean(sample) for sample in losses])


def over_constant(losses: list[list[Number]]) -> Number:
    return mean([sum(sample) for sample in losses]) / 9


FORMULAS: dict[str, tuple[Callable[[Sample], list[Number]], Callable[[list[list[Number]]], Number]]] = {
    "cross_entropy": (cross_entropy, over_tokens),
    "grpo": (grpo, over_samples),
    "dr_grpo": (grpo, over_constant),
    "dapo": (dapo, over_tokens),
    "gspo": (gspo, over_samples),
    "cispo": (cispo, over_tokens),
    "rloo": (rloo, over_samples),
    "reinforce": (reinforce, over_tokens),
    "ppo": (ppo, over_tokens),
    "topr": (topr, over_tokens),
}


def price(sample: Sample, estimator: str) -> list[Number]:
    formulas = {
        "k1": lambda log: log,
        "k2": lambda log: 0.5 * log * log,
        "k3": lambda log: torch.exp(-log) - (1 - log),
    }
    return [formulas[estimator](log) for log in sample.log_ratios("reference_logprobs")]


def dpo(made: Batch, beta: float = 0.1, smoothing: float = 0.0) -> Number:
    losses = []
    for k in range(0, len(made.lengths), 2):
        chosen, rejected = (sum(Sample(made, k + side).log_ratios("reference_logprobs")) for side in (0, 1))
        right = 1 / (1 + torch.exp(-beta * (chosen - rejected)))
        losses.append(-(1 - smoothing) * torch.log(right) - smoothing * torch.log(1 - right))
    return mean(losses)


def loss(
    name: str,
    made: Batch,
    correct: tuple[str, str, float, float] | None = None,
    kl: tuple[float, str] | None = None,
    entropy: float = 0.0,
) -> Number:
    """The loss of the objective `name` with its defaults over the whole batch."""
    if name == "dpo":
        return dpo(made)
    formula, aggregate = FORMULAS[name]
    losses = []
    for sample in samples_of(made):
        if correct:
            sample.correct(*correct)
        losses.append(formula(sample))
        if kl:
            losses[-1] = [a + kl[0] * b for a, b in zip(losses[-1], price(sample, kl[1]), strict=True)]
        losses[-1] = [a - entropy * b for a, b in zip(losses[-1], sample.entropies, strict=True)]
    return aggregate(losses)
