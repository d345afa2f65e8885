"""Supervised training: the negative log-likelihood of each token."""

from __future__ import annotations

from posttrain.training.objectives.tokens import Experience, Loss, Policy


def cross_entropy(policy: Policy, experience: Experience) -> Loss:
    return Loss(-policy.logprobs_P)
