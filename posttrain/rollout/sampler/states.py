"""What the sampler was doing, as intervals that follow each other without a gap: so their sum is the wall time. Pure
but for the clock that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

State = Literal["sampling", "waiting_for_room", "waiting_for_weights", "waiting_for_engines"]


@dataclass
class States:
    """`told(state, started, seconds)` hears of each interval when it ends, and of a long one in parts."""

    told: Callable[[State, float, float], None]
    clock: Callable[[], float]
    longest: float = 10.0
    _now: tuple[State, float] | None = field(default=None)

    def be(self, state: State | None) -> None:
        """The state from now on; None at the end."""
        at = self.clock()
        if self._now is not None:
            was, since = self._now
            if was == state and at - since < self.longest:
                return
            self.told(was, since, at - since)
        self._now = None if state is None else (state, at)


def state_of(*, in_flight: int, healthy: bool, trained: int, sampling: int) -> State:
    """With nothing in flight it waits: for engines that answer, for new weights to reach them, or for the trainer."""
    if in_flight:
        return "sampling"
    if not healthy:
        return "waiting_for_engines"
    return "waiting_for_weights" if trained > sampling else "waiting_for_room"
