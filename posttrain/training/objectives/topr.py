"""TOPR (Le Roux et al., arXiv 2503.14286): samples are weighed by sign.

A sample with a positive advantage is learned from as in supervised training, however unlikely it has become; one with a
negative advantage with its ratio truncated at 1, so that what the policy no longer does is not pushed further away.
"""

from __future__ import annotations

import torch

from posttrain.training.objectives.ratio import bounded, floored, ratio_metrics, to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Mean, Policy


def topr(
    policy: Policy,
    experience: Experience,
    *,
    positive_low: float,
    positive_high: float,
    negative_low: float,
    negative_high: float,
) -> Loss:
    ratio_S = bounded(experience.sum_S(to_old_P(policy, experience).detach())).exp()
    ratio_P, advantages_P = experience.spread_P(ratio_S), experience["advantages"]
    weight_P = torch.where(
        advantages_P < 0, ratio_P.clamp(negative_low, negative_high), ratio_P.clamp(positive_low, positive_high)
    )
    loss_P = -weight_P * advantages_P * floored(policy.logprobs_P)
    return Loss(loss_P, {"weight": Mean.of(weight_P), **ratio_metrics(ratio_P)})
