"""The TaskServer without HTTP: operations that are awaited, waits that end when something happens, the sweep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from posttrain.database import connect, create_tables
from posttrain.group_commit import Writer
from posttrain.rollout.tasks.api import Ended, Lease, LeaseRequest, NewTask, Report, Reported, Status, Submitted
from posttrain.rollout.tasks.metrics import Metrics
from posttrain.rollout.tasks.model import State
from posttrain.rollout.tasks.reading import Reader
from posttrain.rollout.tasks.settings import TaskServerSettings
from posttrain.rollout.tasks.store import Effects, Store
from posttrain.rollout.tasks.tables import LOCK, METADATA
from posttrain.rollout.tasks.waits import Waits

log = logging.getLogger(__name__)
T = TypeVar("T")
_PURGE_SECONDS = 60.0
_OTHERS_SECONDS = 1.0  # between two looks at whether a task ended through another server on the same database


class TaskServer:
    """`async with TaskServer(settings)`: serves until left. Several may share one PostgreSQL database."""

    def __init__(self, settings: TaskServerSettings, *, clock: Callable[[], float] = time.time):
        self.settings, self._clock = settings, clock
        self._engine = connect(settings.database, field="database")
        create_tables(self._engine, METADATA, LOCK)
        self._store, self.read = Store(settings), Reader(self._engine)
        self._writer = Writer(self._engine, LOCK)
        self._workers, self._callers = Waits(), Waits()
        self.metrics = Metrics(lambda: self.read.queues(self._clock()))
        self.closing = False
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TaskServer:
        await self._do(lambda db, effects: self._store.forgive(db, self._clock()))
        self._sweeper = asyncio.create_task(self._sweep_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_waits()
        assert self._sweeper is not None
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        await asyncio.to_thread(self._writer.close)
        self._engine.dispose()

    def close_waits(self) -> None:
        """Let everyone who waits have an answer now: the server is about to end."""
        self.closing = True
        for waits in (self._workers, self._callers):
            for name in waits.names:
                waits.wake(name)

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        return await self._do(lambda db, effects: self._store.submit(db, tasks, self._clock(), effects))

    async def lease(self, wanted: LeaseRequest, gone: Callable[[], Awaitable[bool]]) -> list[Lease]:
        """Leases, waiting for tasks up to `wanted.wait` seconds; none for a caller that is `gone`."""
        until = time.monotonic() + wanted.wait
        while True:
            leases = await self._do(lambda db, effects: self._store.lease(db, wanted, self._clock(), effects))
            left = until - time.monotonic()
            if leases or left <= 0 or self.closing:
                return leases
            await self._workers.wait(wanted.kinds, left)
            if await gone():
                return []

    async def heartbeat(self, attempts: Sequence[str]) -> list[str]:
        return await self._do(lambda db, effects: self._store.heartbeat(db, attempts, self._clock()))

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        return await self._do(lambda db, effects: self._store.report(db, reports, self._clock(), effects))

    async def cancel(self, task: str) -> tuple[State, int]:
        return await self._do(lambda db, effects: self._store.cancel(db, task, self._clock(), effects))

    async def drain(self, kind: str, on: bool) -> None:
        await self._do(lambda db, effects: self._store.drain(db, kind, on))

    async def wait(self, ids: Sequence[str], seconds: float) -> tuple[list[Ended], set[str]]:
        """The ended ones of `ids`, once there are any; the unknown ones."""
        until = time.monotonic() + seconds
        while True:
            waiting = asyncio.ensure_future(self._callers.wait(ids, max(0.0, until - time.monotonic())))
            await asyncio.sleep(0)  # wait before looking, so that no end falls in between
            ended, unknown = await asyncio.to_thread(self.read.ended, ids)
            if ended or unknown or self.closing or time.monotonic() >= until:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
                return ended, unknown
            await waiting

    async def status(self) -> Status:
        queues = await asyncio.to_thread(self.read.queues, self._clock())
        drained, states = await asyncio.to_thread(self.read.counts)
        workers, capacity, _ = self.metrics.workers
        return Status(drained=drained, queues=queues, states=states, workers=workers, capacity=capacity)

    async def _do(self, operation: Callable[[Connection, Effects], T]) -> T:
        """Commit `operation`, then tell those whom its effects concern."""

        def whole(db: Connection) -> tuple[T, Effects]:
            effects = Effects()  # anew with each try
            return operation(db, effects), effects

        answer, effects = await asyncio.wrap_future(self._writer.do(whole))
        self.metrics.tell(effects)
        for kind in effects.submitted:
            self._workers.wake(kind, 1)
        for task, kind, _, _ in effects.ended:
            self._callers.wake(task)
            if kind in self.settings.limits:
                self._workers.wake(kind, 1)
        return answer

    async def _sweep_for_ever(self) -> None:
        purged = others = time.monotonic()
        while True:
            await asyncio.sleep(self.settings.sweep_seconds)
            try:
                if await asyncio.to_thread(self.read.due, self._clock()):
                    await self._do(lambda db, effects: self._store.sweep(db, self._clock(), effects))
                if kinds := self._workers.names:
                    ready = await asyncio.to_thread(self.read.ready, kinds, self._clock())
                    for kind, count in ready.items():
                        self._workers.wake(kind, count)
                now = time.monotonic()
                if now - others > _OTHERS_SECONDS and self._engine.dialect.name != "sqlite":
                    others = now
                    await self._look_for_others()
                if now - purged > _PURGE_SECONDS:
                    purged = now
                    while await self._do(lambda db, effects: self._store.purge(db, self._clock())):
                        pass
            except SQLAlchemyError as problem:  # the database may come back, and until then each request says so
                log.warning("the sweep failed: %s", str(problem).splitlines()[0])

    async def _look_for_others(self) -> None:
        names = self._callers.names
        for start in range(0, len(names), 1000):
            ended, _ = await asyncio.to_thread(self.read.ended, names[start : start + 1000])
            for task in ended:
                self._callers.wake(task.id)
