"""Limits: of each key by rate and by number, and of the whole gateway by how much it takes on at once.

Invariants: what is over a limit is refused at once with the seconds after which it may be tried again; nothing is
queued for a key. The gateway itself queues up to a bound, so that a burst waits and a flood is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.settings import LimitSettings

_INSTANT = 1e-6  # seconds that rounding may make


class Bucket:
    """`per_minute` units flow in evenly; up to a minute's worth is kept. May be overdrawn by one taking."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic):
        self._rate, self._most, self._clock = per_minute / 60, per_minute, clock
        self._level, self._at = per_minute, clock()

    def wait(self) -> float:
        """Seconds until there is a whole unit to be taken; 0: now."""
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        wait = (1 - self._level) / self._rate
        return wait if wait > _INSTANT else 0.0

    def take(self, units: float) -> None:
        self._level -= units


class KeyLimits:
    """What one key may do."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = time.monotonic):
        self._concurrency, self._running = settings.concurrency, 0
        self._requests = Bucket(settings.requests_per_minute, clock) if settings.requests_per_minute else None
        self._tokens = Bucket(settings.tokens_per_minute, clock) if settings.tokens_per_minute else None

    def enter(self) -> None:
        """Begin a request, to be ended by `leave`. Raises GatewayError (429)."""
        if self._concurrency and self._running >= self._concurrency:
            raise GatewayError(429, f"this key may have {self._concurrency} requests under way", retry_after=1.0)
        for bucket, what in ((self._requests, "requests"), (self._tokens, "tokens")):
            if bucket is not None and (wait := bucket.wait()):
                raise GatewayError(429, f"this key has used its {what} of a minute", retry_after=wait)
        if self._requests is not None:
            self._requests.take(1)
        self._running += 1

    def leave(self, tokens: int) -> None:
        self._running -= 1
        if self._tokens is not None:
            self._tokens.take(tokens)


class Admission:
    """At most `in_flight` requests at once, at most `waiting` more in a queue."""

    def __init__(self, in_flight: int, waiting: int):
        self._free, self._waiting, self.queued = asyncio.Semaphore(in_flight), waiting, 0

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Raises GatewayError (429) where the queue is full."""
        if self._free.locked() and self.queued >= self._waiting:
            raise GatewayError(429, "the gateway is full", retry_after=1.0)
        self.queued += 1
        try:
            await self._free.acquire()
        finally:
            self.queued -= 1
        try:
            yield
        finally:
            self._free.release()
