"""CISPO (MiniMax-M1, arXiv 2506.13585): the weight is bounded, and no token loses its gradient."""

from __future__ import annotations

from posttrain.training.objectives.ratio import floored, ratio_metrics, to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Mean, Policy


def cispo(policy: Policy, experience: Experience, *, ratio_min: float, ratio_max: float) -> Loss:
    ratio_P = to_old_P(policy, experience).detach().exp()
    loss_P = -ratio_P.clamp(ratio_min, ratio_max) * experience["advantages"] * floored(policy.logprobs_P)
    outside_P = (ratio_P < ratio_min) | (ratio_P > ratio_max)
    return Loss(loss_P, {"clipped": Mean.of(outside_P), **ratio_metrics(ratio_P)})
