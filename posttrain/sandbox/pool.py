"""Warm sandboxes: started before they are asked for, so that who asks does not wait for it.

Invariants: a sandbox is handed out once and never comes back, so no trace of one user meets the next; no more
than `size` of a spec wait, and no more than `total` of all specs; what waits too long is stopped, since its own
time (spec.wall_seconds) has begun with its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from posttrain.sandbox.protocol import Driver, Sandbox, SandboxGone
from posttrain.sandbox.spec import SandboxSpec

_WAITING_SHARE = 0.1  # of its time that a warm sandbox may spend waiting


@dataclass
class _Shelf:
    spec: SandboxSpec
    warm: deque[tuple[float, Sandbox]] = field(default_factory=deque)
    making: int = 0


class WarmPool:
    """Specs asked for most recently keep their warm sandboxes; the one asked for longest ago gives its up first."""

    def __init__(self, driver: Driver, *, size: int = 2, total: int = 8):
        self._driver, self._size, self._total = driver, size, total
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()
        self._tasks: set[asyncio.Task] = set()
        self.hits = self.misses = 0

    @property
    def waiting(self) -> int:
        """Sandboxes that are warm or on their way."""
        return sum(len(shelf.warm) + shelf.making for shelf in self._shelves.values())

    @asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A started sandbox, stopped at the end."""
        taken = await self.take(spec)
        try:
            yield taken
        finally:
            await taken.stop()

    async def take(self, spec: SandboxSpec) -> Sandbox:
        """A started sandbox, the caller's to stop; others are made ready for whoever asks next."""
        shelf = self._shelves.setdefault(spec.digest, _Shelf(spec))
        self._shelves.move_to_end(spec.digest)
        found: Sandbox | None = None
        while shelf.warm and found is None:
            begun, candidate = shelf.warm.popleft()
            if time.monotonic() - begun < spec.wall_seconds * _WAITING_SHARE and not candidate.ended:
                found = candidate
            else:
                await candidate.stop()
        if found is None:
            self.misses += 1
            found = self._driver.sandbox(spec)
            await found.start()
        else:
            self.hits += 1
        self._refill(shelf)
        return found

    async def prepare(self, spec: SandboxSpec) -> None:
        """Have warm sandboxes of a spec before the first is asked for; returns when they are there."""
        shelf = self._shelves.setdefault(spec.digest, _Shelf(spec))
        self._refill(shelf)
        await asyncio.gather(*self._tasks)

    def _refill(self, shelf: _Shelf) -> None:
        while len(shelf.warm) + shelf.making < min(self._size, self._total) and self._make_room(shelf):
            shelf.making += 1
            task = asyncio.create_task(self._make(shelf))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _make_room(self, wanted: _Shelf) -> bool:
        """Whether one more may wait, after one of the spec asked for longest ago was given up where that is needed."""
        if self.waiting < self._total:
            return True
        for shelf in self._shelves.values():
            if shelf is not wanted and shelf.warm:
                _, given_up = shelf.warm.popleft()
                task = asyncio.create_task(given_up.stop())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return True
        return False

    async def _make(self, shelf: _Shelf) -> None:
        begun = time.monotonic()
        made = self._driver.sandbox(shelf.spec)
        try:
            with contextlib.suppress(SandboxGone):  # who asks will be told, by the one made for them
                await made.start()
                shelf.warm.append((begun, made))
        finally:
            shelf.making -= 1

    async def close(self) -> None:
        """Stop what waits. Those that were taken are their takers' to stop."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        waiting = [sandbox for shelf in self._shelves.values() for _, sandbox in shelf.warm]
        self._shelves.clear()
        await asyncio.gather(*(sandbox.stop() for sandbox in waiting))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
