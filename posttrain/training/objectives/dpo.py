"""DPO (Rafailov et al., arXiv 2305.18290) on pairs: the sequences 2k and 2k+1 are the chosen and the rejected one.

The scores are sums of the tokens' log-ratios to the reference, each bounded. Every token of a pair has the pair's loss,
whose mean over sequences is that over pairs.
"""

from __future__ import annotations

from torch.nn.functional import logsigmoid

from posttrain.training.objectives.ratio import log_ratio
from posttrain.training.objectives.tokens import Experience, Loss, Mean, Policy


def dpo(policy: Policy, experience: Experience, *, beta: float, label_smoothing: float) -> Loss:
    score_S = beta * experience.sum_S(log_ratio(policy.logprobs_P, experience["reference_logprobs"]))
    chosen, rejected = score_S[0::2], score_S[1::2]
    margin = chosen - rejected
    loss = -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)
    return Loss(
        experience.spread_P(loss.repeat_interleave(2)),
        {
            "accuracy": Mean.of(margin > 0), "margin": Mean.of(margin),
            "reward_chosen": Mean.of(chosen), "reward_rejected": Mean.of(rejected),
        },
    )  # fmt: skip
