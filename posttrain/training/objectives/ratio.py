"""Ratios of probabilities, bounded.

Letters: P positions with loss, S sequences.
"""

from __future__ import annotations

import torch

from posttrain.training.objectives.tokens import Experience, Mean, Metrics, Policy

BOUND = 20.0  # of a log-ratio: exp(20) is 5e8, far beyond what any weight should be and far below an overflow
LOWEST = -100.0  # of a log-probability that is used by itself


def bounded(log_ratio: torch.Tensor) -> torch.Tensor:
    return log_ratio.clamp(-BOUND, BOUND)


def log_ratio(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """log(new / old), bounded; 0 where both have probability 0."""
    impossible = torch.isneginf(new) & torch.isneginf(old)
    return bounded(torch.where(impossible, 0.0, new - old))


def to_old_P(policy: Policy, experience: Experience) -> torch.Tensor:
    """The bounded log-ratio of each token to the old policy: 0, with its gradient, where there is no other."""
    return log_ratio(policy.logprobs_P, old_logprobs_P(policy, experience))


def old_logprobs_P(policy: Policy, experience: Experience) -> torch.Tensor:
    return experience["old_logprobs"] if "old_logprobs" in experience else policy.logprobs_P.detach()


def floored(logprobs_P: torch.Tensor) -> torch.Tensor:
    return logprobs_P.clamp(min=LOWEST)


def ratio_metrics(ratio: torch.Tensor) -> Metrics:
    """The mean ratio and that of its square, from which the effective sample size is made."""
    return {"ratio": Mean.of(ratio), "ratio_squared": Mean.of(ratio.detach().double() ** 2)}
