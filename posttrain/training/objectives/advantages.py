"""Rewards to advantages, over whole groups, before anything is selected or packed. Pure; numpy, float64.

Letters: S samples of the update, T tokens with loss of one sample.

Invariant: the result depends on the rewards and who is in whose group, never on order or packing. A reward that is NaN
was never given: it is in no mean, and its advantage is NaN.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from posttrain.training.objectives.config import Overlong

EPSILON = 1e-4  # added to a standard deviation, as in TRL


def advantages(rewards_S: np.ndarray, groups: Sequence[Hashable], *, baseline: str, scale: str) -> np.ndarray:
    """[S] advantages; `baseline` and `scale` as in the configuration (`critic` is `gae`'s).

    Standard deviations are of samples (n - 1). A group of one, or of equal rewards, gets exactly 0 from a baseline of
    its group.
    """
    rewards_S = np.asarray(rewards_S, np.float64)
    made = rewards_S.copy()
    everyone = _scored(rewards_S, np.arange(len(rewards_S)))
    if baseline == "batch" and len(everyone):
        made[everyone] = _centred(rewards_S[everyone])
    by_group: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        by_group.setdefault(group, []).append(index)
    for members in by_group.values():
        scored = _scored(rewards_S, np.array(members))
        count = len(scored)
        if baseline in ("group", "leave_one_out") and count:
            made[scored] = _centred(rewards_S[scored])
            if baseline == "leave_one_out" and count > 1:
                made[scored] *= count / (count - 1)  # which is r minus the mean of the others
        if scale == "group" and count > 1:
            made[scored] /= rewards_S[scored].std(ddof=1) + EPSILON
    if scale == "batch" and len(everyone) > 1:
        made[everyone] /= made[everyone].std(ddof=1) + EPSILON
    return made


def gae(rewards_T: np.ndarray, values_T: np.ndarray, *, gamma: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns [T] of one sample by generalised advantage estimation (Schulman et al., 1506.02438).

    `values_T` is what the critic said before each token; behind the last one nothing follows.
    """
    made, following, value = np.zeros(len(rewards_T)), 0.0, 0.0
    for t in reversed(range(len(rewards_T))):
        surprise = rewards_T[t] + gamma * value - values_T[t]
        made[t] = following = surprise + gamma * lam * following
        value = values_T[t]
    return made, made + values_T


def standardised(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Less the mean and divided by the standard deviation over the numbers of all parts; 0 where there is no spread."""
    numbers = np.concatenate([np.zeros(0), *parts])
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < 2 or np.ptp(numbers) == 0:
        return [part * 0 for part in parts]
    return [(part - numbers.mean()) / (numbers.std(ddof=1) + EPSILON) for part in parts]


def overlong_penalty(length: int, config: Overlong) -> float:
    """What a sample of `length` tokens loses of its reward: nothing up to the buffer, all of it at the limit."""
    if not config.limit:
        return 0.0
    into = (length - (config.limit - config.buffer)) / config.buffer
    return config.penalty * min(max(into, 0.0), 1.0)


def _scored(rewards_S: np.ndarray, members: np.ndarray) -> np.ndarray:
    return members[~np.isnan(rewards_S[members])]


def _centred(rewards: np.ndarray) -> np.ndarray:
    return rewards - rewards.mean() if np.ptp(rewards) > 0 else np.zeros_like(rewards)
