"""What is to be done: in this pass, in the order it was asked for, or when its time has come."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

Act = Callable[[], object]


class Agenda:
    """Holds what is due; whoever drives it takes one act after the other."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._queue: deque[Act] = deque()
        self._queued: set[int] = set()
        self._timers: list[tuple[float, int, Act, bool]] = []
        self._numbers = itertools.count()

    def soon(self, act: Act) -> None:
        """Do it in this pass, after what is queued already."""
        self._queue.append(act)

    def soon_once(self, key: object, act: Act) -> None:
        """Like `soon`, but only once however often it is asked for."""
        if id(key) not in self._queued:
            self._queued.add(id(key))

            def do() -> None:
                self._queued.discard(id(key))
                act()

            self._queue.append(do)

    def at(self, moment: float, act: Act, *, cut_short: bool = False) -> None:
        """Do it when the time has come; with `cut_short` also at once where the workflow is stopped before."""
        heapq.heappush(self._timers, (moment, next(self._numbers), act, cut_short))

    def cut_waits_short(self) -> None:
        """The workflow is being stopped: what only waits for its time is decided now."""
        for _, _, act, cut_short in self._timers:
            if cut_short:
                self.soon(act)

    def ring(self) -> None:
        """Do what the time has come for."""
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def next(self) -> None:
        self._queue.popleft()()

    def __len__(self) -> int:
        """How much is to be done now."""
        return len(self._queue)

    def seconds_until_next(self) -> float | None:
        """How long nothing is to be done by the clock; None is for ever."""
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None
