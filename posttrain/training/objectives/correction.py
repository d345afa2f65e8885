"""Importance weights between the engine that sampled and the trainer that recomputed.

For the same weights of the model they differ by rounding and kernels; the sampler may have seen an older version too.
"""

from __future__ import annotations

import torch

from posttrain.training.objectives.config import Correction
from posttrain.training.objectives.ratio import bounded, log_ratio, old_logprobs_P
from posttrain.training.objectives.tokens import Experience, Mean, Metrics, Policy


def correction(policy: Policy, experience: Experience, config: Correction) -> tuple[torch.Tensor, Metrics]:
    """[P] weights without gradient, by which advantages are multiplied. A ratio at `low` or `high` is inside.

    The trainer's side are the old log-probabilities, and the policy's where there are none. At level `sequence` a token
    has the product of its sequence's ratios. Every objective's gradient is linear in a positive factor of the
    advantages, so that it is corrected without knowing of it.
    """
    log_ratio_P = log_ratio(old_logprobs_P(policy, experience), experience["sampler_logprobs"])
    gap_P = log_ratio_P.abs()
    if config.level == "sequence":
        log_ratio_P = experience.spread_P(bounded(experience.sum_S(log_ratio_P)))
    ratio_P = log_ratio_P.exp()
    outside_P = (ratio_P < config.low) | (ratio_P > config.high)
    if config.mode == "mask":
        weights_P = torch.where(outside_P, 0.0, ratio_P)
    else:
        weights_P = ratio_P.clamp(config.low, config.high)
    return weights_P, {
        "sampler_gap": Mean.of(gap_P), "sampler_ratio": Mean.of(ratio_P), "sampler_outside": Mean.of(outside_P),
    }  # fmt: skip
