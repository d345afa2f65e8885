"""Statistics of evaluations: pure, and the same for the same numbers and seed.

Invariant: an interval holds its estimate and lies within the range that the estimate may take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


def wilson(successes: float, trials: float, confidence: float = 0.95) -> Estimate:
    """A share with its score interval (Wilson, 1927). No trials say nothing: the interval is then [0, 1]."""
    if trials <= 0:
        return Estimate(0.0, 0.0, 1.0)
    share = successes / trials
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def clustered_share(successes: Sequence[int], samples: int, confidence: float = 0.95) -> Estimate:
    """The share of right samples where each prompt has `samples` of them, `successes[i]` right for prompt i.

    Samples of one prompt are not independent, so the Wilson interval is taken at the effective number of trials
    (Kish's design effect from the variance between prompts), between one for each prompt and one for each sample.
    """
    prompts = len(successes)
    if not prompts:
        return wilson(0, 0, confidence)
    rates = np.asarray(successes, dtype=float) / samples
    share = float(rates.mean())
    effective = float(prompts)
    if samples > 1 and prompts > 1:
        of_the_mean = float(rates.var(ddof=1)) / prompts
        if of_the_mean > 0:
            effective = min(max(share * (1 - share) / of_the_mean, prompts), prompts * samples)
    return wilson(share * effective, effective, confidence)


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Unbiased estimate that one of k samples is right, from `samples` of which `successes` are.

    Chen et al., arXiv 2107.03374. Raises ValueError where k is not between 1 and `samples`.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"k must lie in [1, {samples}], got {k}")
    if samples - successes < k:
        return 1.0
    return 1.0 - math.prod(1 - k / left for left in range(samples - successes + 1, samples + 1))


def paired_bootstrap(
    baseline: Sequence[float], candidate: Sequence[float], *, seed: int, resamples: int = 10_000,
    confidence: float = 0.95,
) -> Estimate:  # fmt: skip
    """Mean of `candidate[i] - baseline[i]` with a percentile interval over resampled prompts (Efron, 1979).

    Both hold one rate for each prompt, in the same order. Raises ValueError for unequal or no prompts.
    """
    if len(baseline) != len(candidate) or not len(baseline):
        raise ValueError(f"paired prompts are needed, got {len(baseline)} and {len(candidate)}")
    differences = np.asarray(candidate, dtype=float) - np.asarray(baseline, dtype=float)
    generator = np.random.Generator(np.random.PCG64(seed))
    # Prompts with the same difference are interchangeable: it is enough to draw how many of each there are.
    values, counts = np.unique(differences, return_counts=True)
    drawn = generator.multinomial(len(differences), counts / len(differences), size=resamples)
    means = drawn @ values / len(differences)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    mean = float(differences.mean())
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)))
