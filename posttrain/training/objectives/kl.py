"""Estimates of KL(policy, reference) from what the policy drew (Schulman, joschu.net/blog/kl-approx.html)."""

from __future__ import annotations

import torch

from posttrain.training.objectives.ratio import log_ratio


def kl(logprobs: torch.Tensor, reference: torch.Tensor, estimator: str) -> torch.Tensor:
    """Of each token, from the bounded log(policy / reference). k1 may be negative, k2 and k3 may not.

    In the loss the gradient of k2 is that of the KL, that of k3 is close to it near the reference, and that of k1 is
    0 on average: k1 is for the reward.
    """
    ratio = log_ratio(logprobs, reference)
    if estimator == "k1":
        return ratio
    return ratio**2 / 2 if estimator == "k2" else (-ratio).exp() - 1 + ratio
