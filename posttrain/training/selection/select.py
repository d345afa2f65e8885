"""The choice of the samples of an update."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from posttrain.contract.digest import digest_value
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.staleness import Span, is_ahead, is_stale


class Reason(StrEnum):
    """Why a sample is not trained on. The set is closed, and the first that holds is given."""

    unscored = "unscored"  # no verdict with a reward
    ahead = "ahead"  # of a version that the trainer does not have
    stale = "stale"  # older than the window
    no_spread = "no_spread"  # all raw rewards of its group are equal
    too_hard = "too_hard"  # its group's pass rate is below the least
    too_easy = "too_easy"  # and above the largest
    truncated = "truncated"
    too_short = "too_short"
    too_long = "too_long"
    surplus_group = "surplus_group"  # enough groups came before it
    surplus_sample = "surplus_sample"  # others of its group differ more
    low_reward = "low_reward"  # beyond the share of negatives that is kept


class Candidate(NamedTuple):
    """What the choice depends on. `reward` is the raw one, NaN if there is none; `advantage` the mean over tokens."""

    id: str
    group: str
    reward: float
    advantage: float
    tokens: int  # that are trained on
    truncated: bool
    spans: Sequence[Span]


class Selected(NamedTuple):
    kept: list[int]  # places in the given sequence, rising
    weights: list[float]  # of the kept, for their advantages
    left_out: dict[int, Reason]

    @property
    def counts(self) -> Counter[Reason]:
        return Counter(self.left_out.values())


def select(
    candidates: Sequence[Candidate], config: SampleSelection, *, version: int, window: int, seed: int
) -> Selected:
    """Which of `candidates`, whole groups in the order of their coming, the trainer at `version` trains on."""
    groups: dict[str, list[int]] = {}
    for place, candidate in enumerate(candidates):
        groups.setdefault(candidate.group, []).append(place)
    left_out: dict[int, Reason] = {}
    full = 0
    for members in groups.values():
        of_group = _fault_of_group([candidates[place].reward for place in members], config)
        for place in members:
            candidate = candidates[place]
            reason = _fault_of_origin(candidate, version, window) or of_group or _fault_of_sample(candidate, config)
            if reason:
                left_out[place] = reason
        passed = [place for place in members if place not in left_out]
        if config.groups and full == config.groups:
            left_out |= dict.fromkeys(passed, Reason.surplus_group)
        elif passed:
            full += 1
            chosen = set(_most_different(candidates, passed, config.per_group or len(passed)))
            left_out |= {place: Reason.surplus_sample for place in passed if place not in chosen}
    negative = [p for p in range(len(candidates)) if p not in left_out and candidates[p].advantage < 0]
    negative.sort(key=lambda place: digest_value([seed, candidates[place].id]))
    for place in negative[math.ceil(config.negatives * len(negative)) :]:
        left_out[place] = Reason.low_reward
    kept = [place for place in range(len(candidates)) if place not in left_out]
    weights = [config.negative_weight if candidates[place].advantage < 0 else 1.0 for place in kept]
    return Selected(kept, weights, left_out)


def _fault_of_origin(candidate: Candidate, version: int, window: int) -> Reason | None:
    if math.isnan(candidate.reward):
        return Reason.unscored
    if is_ahead(candidate.spans, version):
        return Reason.ahead
    return Reason.stale if is_stale(candidate.spans, version, window=window) else None


def _fault_of_group(rewards: Sequence[float], config: SampleSelection) -> Reason | None:
    scored = [reward for reward in rewards if not math.isnan(reward)]
    if not scored:
        return None
    if config.spread and min(scored) == max(scored):
        return Reason.no_spread
    rate = sum(reward >= config.passes_at for reward in scored) / len(scored)
    if rate < config.pass_rate[0]:
        return Reason.too_hard
    return Reason.too_easy if rate > config.pass_rate[1] else None


def _fault_of_sample(candidate: Candidate, config: SampleSelection) -> Reason | None:
    if candidate.truncated and config.truncated == "drop":
        return Reason.truncated
    if candidate.tokens < config.min_tokens:
        return Reason.too_short
    return Reason.too_long if config.max_tokens and candidate.tokens > config.max_tokens else None


def _most_different(candidates: Sequence[Candidate], places: Sequence[int], count: int) -> list[int]:
    """`count` of `places`, of the largest variance of rewards: some of the lowest with some of the highest."""
    if count >= len(places):
        return list(places)
    ranked = sorted(places, key=lambda place: (candidates[place].reward, candidates[place].id))
    cuts = [ranked[:low] + ranked[len(ranked) - (count - low) :] for low in range(count + 1)]
    return max(cuts, key=lambda cut: _variance([candidates[place].reward for place in cut]))


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
