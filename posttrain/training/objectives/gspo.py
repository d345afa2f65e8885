"""GSPO (Zheng et al., arXiv 2507.18071): clipped is the ratio of a whole sample, to the power of 1 by its length.

Every token of a sample has the sample's ratio, so that shares of tokens are reported.
"""

from __future__ import annotations

from posttrain.training.objectives.clipped import clipped
from posttrain.training.objectives.ratio import to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Policy


def gspo(policy: Policy, experience: Experience, *, clip_low: float, clip_high: float) -> Loss:
    log_ratio_S = experience.mean_S(to_old_P(policy, experience))
    return clipped(
        experience.spread_P(log_ratio_S), experience["advantages"], clip_low=clip_low, clip_high=clip_high
    )  # fmt: skip
