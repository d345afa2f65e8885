"""PPO (Schulman et al., arXiv 1707.06347) with a critic: the clipped surrogate, and the critic's squared error.

Advantages and returns are those of `advantages.gae`. The error is taken of the value and of the value held within
`value_clip` of the one at sampling, and the larger counts, as OpenAI's baselines do it.
"""

from __future__ import annotations

import torch

from posttrain.training.objectives.clipped import clipped
from posttrain.training.objectives.ratio import to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Mean, Policy


def ppo(
    policy: Policy,
    experience: Experience,
    *,
    clip_low: float,
    clip_high: float,
    value_coefficient: float,
    value_clip: float,
    gamma: float,  # of the advantages, like lam
    lam: float,
) -> Loss:
    assert policy.values_P is not None, "a model with a critic gives values"
    surrogate = clipped(
        to_old_P(policy, experience), experience["advantages"], clip_low=clip_low, clip_high=clip_high
    )  # fmt: skip
    error_P = value_error(policy.values_P, experience["old_values"], experience["returns"], value_clip)
    return Loss(
        surrogate.tokens_P + value_coefficient * error_P,
        {**surrogate.metrics, "value_loss": Mean.of(error_P), "value": Mean.of(policy.values_P)},
    )


def value_error(
    values_P: torch.Tensor, old_values_P: torch.Tensor, returns_P: torch.Tensor, value_clip: float
) -> torch.Tensor:
    """[P]: half the squared error of the critic. `value_clip` 0 does not clip."""
    error_P = (values_P - returns_P) ** 2
    if value_clip:
        held_P = old_values_P + (values_P - old_values_P).clamp(-value_clip, value_clip)
        error_P = torch.maximum(error_P, (held_P - returns_P) ** 2)
    return error_P / 2
