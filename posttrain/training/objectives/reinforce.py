"""REINFORCE (Williams 1992): -A log p of each token, with the batch's mean reward as the baseline.

It has no ratio: for samples of an older policy set `correction`.
"""

from __future__ import annotations

from posttrain.training.objectives.ratio import floored
from posttrain.training.objectives.tokens import Experience, Loss, Policy


def reinforce(policy: Policy, experience: Experience) -> Loss:
    return Loss(-experience["advantages"] * floored(policy.logprobs_P))
