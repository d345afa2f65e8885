"""What an iteration begins with and leaves: the learner's tensors, and what the loop remembers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from posttrain.contract import StepContext
from posttrain.contract.context import METRICS
from posttrain.training.checkpoints import CheckpointStore, Saved
from posttrain.training.curves import forget_after
from posttrain.training.learner import Learner
from posttrain.training.rl.feed import Place
from posttrain.training.state import restore

log = logging.getLogger(__name__)

ROWS = "rows.jsonl"  # what each update was trained on, in order, and what it left out


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


def resume(context: StepContext, store: CheckpointStore, learner: Learner, before: Saved | None) -> State:
    """From the newest checkpoint of this iteration, else from the one `before` it, else from the beginning."""
    mine = store.newest()
    found = mine or before
    if found is not None:
        restore(found, learner)
    state = State() if found is None else State(**found.state)
    if mine is not None:
        log.info("resuming from %s", mine.path)
    forget_after(context.directory / METRICS, state.version, key="step")
    forget_after(context.directory / ROWS, state.version, key="version")
    return state
