"""GRPO (Shao et al., arXiv 2402.03300): clipped at tokens, the mean over each sample and then over samples."""

from __future__ import annotations

from posttrain.training.objectives.clipped import clipped
from posttrain.training.objectives.ratio import to_old_P
from posttrain.training.objectives.tokens import Experience, Loss, Policy


def grpo(policy: Policy, experience: Experience, *, clip_low: float, clip_high: float) -> Loss:
    log_ratio_P = to_old_P(policy, experience)
    return clipped(log_ratio_P, experience["advantages"], clip_low=clip_low, clip_high=clip_high)
