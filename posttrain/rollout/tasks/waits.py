"""Who waits for what, within one server: callers for tasks that end, workers for tasks that come.

Invariant: a waiting caller costs a future and nothing else. Wakes are hints: whoever is woken looks again, and whoever
is not is woken by the next sweep, so that a lost one costs a moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class Waits:
    """Futures by name. For the event loop's thread only."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def names(self) -> list[str]:
        return [name for name, line in self._lines.items() if any(not f.done() for f in line)]

    async def wait(self, names: Iterable[str], seconds: float) -> None:
        """Until one of `names` is woken, at most `seconds`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entered = set(names)
        for name in entered:
            self._lines.setdefault(name, deque()).append(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            future.cancel()
            for name in entered:
                line = self._lines.get(name)
                if line is not None and future in line:
                    line.remove(future)
                if not line:
                    self._lines.pop(name, None)

    def wake(self, name: str, count: int | None = None) -> None:
        """The first `count` that wait for `name`; without a count all."""
        line = self._lines.get(name)
        while line and count != 0:
            future = line.popleft()
            if not future.done():
                future.set_result(None)
                count = None if count is None else count - 1
        if not line:
            self._lines.pop(name, None)
