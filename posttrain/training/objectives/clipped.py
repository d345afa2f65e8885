"""The clipped surrogate (PPO: Schulman et al., arXiv 1707.06347)."""

from __future__ import annotations

import torch

from posttrain.training.objectives.ratio import ratio_metrics
from posttrain.training.objectives.tokens import Loss, Mean


def clipped(log_ratio: torch.Tensor, advantages: torch.Tensor, *, clip_low: float, clip_high: float) -> Loss:
    """-min(r A, clip(r) A) of each element; at a bound the gradient is that of r A.

    Where the ratio is beyond the bound that the advantage pushes it over, the gradient is 0; `clipped` is the share of
    those elements.
    """
    ratio = log_ratio.exp()
    low, high = 1 - clip_low, 1 + clip_high
    loss = -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    beyond = ((ratio < low) & (advantages < 0)) | ((ratio > high) & (advantages > 0))
    return Loss(loss, {"clipped": Mean.of(beyond), **ratio_metrics(ratio)})
