"""Samples with rewards to documents that an objective can be trained on. Pure.

Letters: P tokens with loss of one sample.

Invariants: advantages are made over all samples, whole groups, before any is left out; what is left out is counted
under a reason and reaches neither a row nor a normaliser; nothing here knows which objective it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from posttrain.training.chat import Document
from posttrain.training.objectives.advantages import advantages, gae, overlong_penalty, standardised
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.kl import kl
from posttrain.training.packing import pack
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.select import Candidate, Selected, select
from posttrain.training.selection.staleness import Span


@dataclass(frozen=True, eq=False)
class Sample:
    """One trajectory as the trainer takes it from the stream.

    `document` has loss on the tokens that the policy produced. Its signals are what is known of them so far:
    `sampler_logprobs`, and where they were computed `old_logprobs`, `reference_logprobs` and `old_values`.
    `reward` is the raw one, NaN where no verdict gave any.
    """

    document: Document
    group: str
    reward: float
    spans: Sequence[Span] = ()
    truncated: bool = False


class Chosen(NamedTuple):
    """`documents` have the signal `advantages` (with a critic `returns` too); `selected` counts the others."""

    documents: list[Document]
    selected: Selected


def choose(
    samples: Sequence[Sample],
    objective: ObjectiveConfig,
    selection: SampleSelection,
    *,
    version: int,
    window: int,
    seed: int,
) -> Chosen:
    """What the trainer at `version` trains on of `samples`, none older than `window` versions."""
    credited = credit(samples, objective)
    candidates = [
        Candidate(
            sample.document.id, sample.group, sample.reward, _mean(document.signals["advantages"]),
            document.loss_tokens, sample.truncated, sample.spans,
        )
        for sample, document in zip(samples, credited, strict=True)
    ]  # fmt: skip
    selected = select(candidates, selection, version=version, window=window, seed=seed)
    documents = [
        credited[place].with_signals(advantages=credited[place].signals["advantages"] * np.float32(weight))
        for place, weight in zip(selected.kept, selected.weights, strict=True)
    ]
    return Chosen(documents, selected)


def credit(samples: Sequence[Sample], config: ObjectiveConfig) -> list[Document]:
    """Each sample's document with the signal `advantages`, and `returns` where there is a critic."""
    prices = [_prices(sample, config) for sample in samples]
    shaped = [
        sample.reward - overlong_penalty(sample.document.loss_tokens, config.overlong) for sample in samples
    ]  # fmt: skip
    if config.baseline == "critic":
        return _by_critic(samples, shaped, prices, config)
    rewards = np.array([reward - price.sum() for reward, price in zip(shaped, prices, strict=True)])
    made = advantages(rewards, [sample.group for sample in samples], baseline=config.baseline, scale=config.scale)
    return [
        sample.document.with_signals(advantages=np.full(sample.document.loss_tokens, advantage, np.float32))
        for sample, advantage in zip(samples, made, strict=True)
    ]


def _by_critic(
    samples: Sequence[Sample], rewards: Sequence[float], prices: Sequence[np.ndarray], config: ObjectiveConfig
) -> list[Document]:
    options, estimated = config.resolved_options(), []
    for sample, reward, price in zip(samples, rewards, prices, strict=True):
        rewards_P = -price
        rewards_P[-1:] += reward
        values_P = sample.document.signals["old_values"].astype(np.float64)
        estimated.append(gae(rewards_P, values_P, gamma=options.gamma, lam=options.lam))
    made = [advantages_P for advantages_P, _ in estimated]
    if config.scale == "batch":
        made = standardised(made)
    return [
        sample.document.with_signals(advantages=advantages_P.astype(np.float32), returns=returns_P.astype(np.float32))
        for sample, advantages_P, (_, returns_P) in zip(samples, made, estimated, strict=True)
    ]


def _prices(sample: Sample, config: ObjectiveConfig) -> np.ndarray:
    """float64 [P]: what each token's leaving of the reference takes from the reward."""
    if config.kl.place != "reward" or not config.kl.coefficient:
        return np.zeros(sample.document.loss_tokens)
    signals = sample.document.signals
    own = signals["old_logprobs" if "old_logprobs" in signals else "sampler_logprobs"]
    policy_P, reference_P = (torch.from_numpy(side.astype(np.float64)) for side in (own, signals["reference_logprobs"]))
    return config.kl.coefficient * kl(policy_P, reference_P, config.kl.estimator).numpy()


def _mean(values_P: np.ndarray) -> float:
    return float(values_P.mean()) if len(values_P) else 0.0


def pack_units(documents: Sequence[Document], *, unit: int, capacity: int) -> list[list[Document]]:
    """Rows of documents, of which every `unit` that follow one another (a pair: 2) stay together."""
    units = [documents[start : start + unit] for start in range(0, len(documents), unit)]
    lengths = [sum(map(len, members)) for members in units]
    return [[d for place in row for d in units[place]] for row in pack(lengths, range(len(units)), capacity=capacity)]
