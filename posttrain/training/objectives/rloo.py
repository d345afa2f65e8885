"""RLOO (Ahmadian et al., arXiv 2402.14740): a sample is one action, and its baseline are the others of its group.

Off-policy, the ratio of the whole sample (the product of its tokens' ratios, its logarithm bounded) is clipped;
on-policy the gradient is that of -A log p(sample).
"""

from __future__ import annotations

from posttrain.training.objectives.clipped import clipped
from posttrain.training.objectives.ratio import bounded, to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Policy


def rloo(policy: Policy, experience: Experience, *, clip_low: float, clip_high: float) -> Loss:
    log_ratio_S = bounded(experience.sum_S(to_old_P(policy, experience)))
    return clipped(
        experience.spread_P(log_ratio_S), experience["advantages"], clip_low=clip_low, clip_high=clip_high
    )  # fmt: skip
