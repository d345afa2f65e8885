"""AdamW over named weights, and the learning rate as a function of the update.

Invariant: the learning rate depends on the number of the update and nothing else, so that there is no state of
a schedule to be kept or lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from posttrain.training.config import Learning


def learning_rate(update: int, total: int, config: Learning) -> float:
    """The rate of update `update` (from 0) of `total`: never 0, so that every update counts."""
    warmup, peak = round(config.warmup * total), config.learning_rate
    if update < warmup:
        return peak * (update + 1) / (warmup + 1)
    if config.schedule == "constant":
        return peak
    share = (update - warmup) / max(total - warmup, 1)
    return peak * (config.decay_to + (1 - config.decay_to) * 0.5 * (1 + math.cos(math.pi * share)))


def build_optimizer(weights: Mapping[str, torch.nn.Parameter], config: Learning) -> torch.optim.AdamW:
    """One optimiser for all weights. Vectors (norms, biases) are not decayed."""
    matrices = [weight for weight in weights.values() if weight.ndim >= 2]
    vectors = [weight for weight in weights.values() if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    first, second = config.adam.betas
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate, betas=(first, second), eps=config.adam.eps, fused=True,
    )  # fmt: skip


def optimizer_state(
    optimizer: torch.optim.Optimizer, weights: Mapping[str, torch.nn.Parameter]
) -> dict[str, dict[str, torch.Tensor]]:
    """The state by the weights' names: {name: {exp_avg, exp_avg_sq, step}}; made where there is none yet.

    The tensors are the optimiser's own, so that loading a checkpoint into them restores it.
    """
    for weight in weights.values():
        if not optimizer.state[weight]:
            optimizer.state[weight] = {
                "step": torch.zeros((), dtype=torch.float32, device=weight.device),
                "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
            }
    return {name: dict(optimizer.state[weight]) for name, weight in weights.items()}
