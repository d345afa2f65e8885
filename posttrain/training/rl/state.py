"""What an iteration begins with and leaves: the learner's tensors, and what the loop remembers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import torch

from posttrain.contract import StepContext
from posttrain.training.checkpoints import CheckpointStore, Saved, load
from posttrain.training.curves import forget_after
from posttrain.training.learner import Learner
from posttrain.training.rl.feed import Place

log = logging.getLogger(__name__)


@dataclass
class State:
    """What the loop remembers from one update to the next, and one iteration from the one before."""

    version: int = 0  # of the weights: updates since the loop began
    offset: int = 0  # with `used`: the place in the stream
    used: int = 0
    trained: int = 0  # groups, since the loop began
    dropped: int = 0
    samples: int = 0  # trained on
    left_out: dict[str, int] = field(default_factory=dict)  # samples by reason
    reward: float = 0.0  # mean raw reward of the last update's groups, those that were dropped included

    @property
    def place(self) -> Place:
        return Place(self.offset, self.used)


def tensors(learner: Learner) -> dict[str, Any]:
    """All of a checkpoint, the learner's own: loading into them restores it."""
    rng = {"cpu": torch.get_rng_state()}
    if learner.model.module.device.type == "cuda":
        rng["cuda"] = torch.cuda.get_rng_state()
    return learner.state() | {"rng": rng}


def restore(saved: Saved, learner: Learner) -> State:
    """The learner as it was when `saved` was."""
    found = tensors(learner)
    load(saved, found)
    torch.set_rng_state(found["rng"]["cpu"])
    if "cuda" in found["rng"]:
        torch.cuda.set_rng_state(found["rng"]["cuda"])
    learner.model.publish()
    return State(**saved.state)


def resume(context: StepContext, store: CheckpointStore, learner: Learner, before: Saved | None) -> State:
    """From the newest checkpoint of this iteration, else from the one `before` it, else from the beginning."""
    mine = store.newest()
    found = mine or before
    state = State() if found is None else restore(found, learner)
    if mine is not None:
        log.info("resuming from %s", mine.path)
    forget_after(context, state.version)
    return state
