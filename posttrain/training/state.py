"""All tensors of a training, as a checkpoint holds them: the learner's, and the random generators'."""

from __future__ import annotations

from typing import Any

import torch

from posttrain.training.checkpoints import Saved, load
from posttrain.training.learner import Learner


def tensors(learner: Learner) -> dict[str, Any]:
    """By name. Weights and optimiser are the learner's own: loading into them restores it."""
    rng = {"cpu": torch.get_rng_state()}
    if learner.model.module.device.type == "cuda":
        rng["cuda"] = torch.cuda.get_rng_state()
    return learner.state() | {"rng": rng}


def restore(saved: Saved, learner: Learner) -> None:
    """The learner and the generators as they were when `saved`, which was verified, was made."""
    found = tensors(learner)
    load(saved, found)
    torch.set_rng_state(found["rng"]["cpu"])
    if "cuda" in found["rng"]:
        torch.cuda.set_rng_state(found["rng"]["cuda"])
    learner.model.publish()
