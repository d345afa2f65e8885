"""The coordinator without HTTP: events in order, each on disk before it is answered; long polls; plans; engines.

One task takes the events that wait, steps the state through all of them and writes once, so that a rank of many waits
for one sync to disk and not for a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable

import httpx
import msgspec
from msgspec.structs import replace

from posttrain.etha.coordinator import events, machine, orders
from posttrain.etha.coordinator.engines import EngineFailed, change
from posttrain.etha.coordinator.metrics import Metrics
from posttrain.etha.coordinator.planning import Plans
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.coordinator.state import Commit, State
from posttrain.etha.coordinator.store import Store
from posttrain.etha.wire import (
    Joined,
    JoinRank,
    JoinSource,
    RankBeat,
    RankOrders,
    RankTold,
    SourceBeat,
    SourceOrders,
    SourceTold,
)
from posttrain.group_commit import Refused

log = logging.getLogger(__name__)
events_log = logging.getLogger("posttrain.etha.events")
_GONE = "gone"  # the tag of one who is no member any more: its next beat is refused


class Coordinator:
    """`async with Coordinator(settings)`: serves until left."""

    def __init__(self, settings: CoordinatorSettings, *, clock: Callable[[], float] = time.time):
        self.settings, self._clock = settings, clock
        self.store = Store(settings.database)
        self.state = machine.forgive(self.store.load(), clock(), settings)
        self.metrics = Metrics(lambda: self.state)
        self.closing = False
        self._waiting: asyncio.Queue[tuple[events.Event, asyncio.Future[None]]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.plans = Plans(self.store, settings.bucket_bytes, self.metrics.planned.observe)
        self._engines: dict[int, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Coordinator:
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(self.settings.commit_seconds, connect=5.0))
        self._tasks = [asyncio.create_task(self._take_for_ever()), asyncio.create_task(self._tick_for_ever())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_waits()
        await self.plans.close()
        running = [*self._tasks, *self._engines.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._http.aclose()
        self.store.close()

    def close_waits(self) -> None:
        """Let everyone who waits have an answer now: the server is about to end."""
        self.closing = True
        self._changed.set()

    async def tell(self, event: events.Event) -> None:
        """Returns once what follows from the event is on disk. Raises Refused."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((event, done))
        await done

    async def join_source(self, group: str, rank: int, asked: JoinSource) -> Joined:
        if not 0 <= rank < asked.ranks or len(asked.layout.ranks) != 1:
            raise Refused(422, f"rank {rank} of {asked.ranks} must say what it alone holds")
        digest = await self._keep(asked.layout)
        await self.tell(events.SourceJoins(group, rank, asked.ranks, digest))
        return Joined(self.state.sources[f"{group}/{rank}"].epoch, self.settings.lease_seconds)

    async def join_rank(self, replica: str, rank: int, asked: JoinRank) -> Joined:
        digest = await self._keep(asked.wants)
        await self.tell(events.RankJoins(replica, rank, asked.ranks, digest, asked.address, asked.url, asked.applied))
        return Joined(self.state.ranks[f"{replica}/{rank}"].epoch, self.settings.lease_seconds)

    async def source_beats(self, key: str, beat: SourceBeat) -> SourceTold:
        await self.tell(events.SourceSays(key, beat.epoch, beat.report))

        def told() -> tuple[str, SourceOrders]:
            member = self.state.sources.get(key)
            if member is None or member.epoch != beat.epoch:
                return _GONE, SourceOrders()
            found = orders.for_source(self.state, key)
            return _tag(found), found

        return SourceTold(*await self._other(told, beat.seen, beat.wait))

    async def rank_beats(self, key: str, beat: RankBeat) -> RankTold:
        await self.tell(events.RankSays(key, beat.epoch, beat.report))
        self.metrics.received(key, beat.report)

        def told() -> tuple[str, RankOrders]:
            member = self.state.ranks.get(key)
            if member is None or member.epoch != beat.epoch:
                return _GONE, RankOrders()
            found = orders.for_rank(self.state, key)
            return _tag(found), found

        return RankTold(*await self._other(told, beat.seen, beat.wait))

    async def wants(self, key: str) -> bytes:
        """What a rank wants, as it said so. Raises Refused."""
        if key not in self.state.ranks:
            raise Refused(404, f"there is no rank {key}")
        return await asyncio.to_thread(self.store.blob, self.state.ranks[key].wants)

    async def _keep(self, thing: object) -> str:
        value = msgspec.json.encode(thing)
        digest = hashlib.sha256(value).hexdigest()
        await asyncio.to_thread(self.store.keep, digest, value)
        return digest

    async def _other(self, told: Callable, seen: str, wait: float) -> tuple:
        """What is to be told, once it is other than what was `seen`, or after `wait`."""
        until = time.monotonic() + wait
        while True:
            changed, now = self._changed, time.monotonic()
            tag, found = told()
            if tag != seen or now >= until or self.closing:
                return tag, found
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), until - now)

    async def _take_for_ever(self) -> None:
        while True:
            taken = [await self._waiting.get()]
            while not self._waiting.empty():
                taken.append(self._waiting.get_nowait())
            before = state = self.state
            answers: list[tuple[asyncio.Future[None], Refused | None]] = []
            told: list[dict[str, object]] = []
            now = self._clock()
            for event, done in taken:
                try:
                    after = machine.step(state, event, now, self.settings)
                except Refused as refused:
                    answers.append((done, refused))
                    continue
                told += orders.happened(state, after)
                state = after
                answers.append((done, None))
            timed = [{"time": now, **event} for event in told]
            try:
                await asyncio.to_thread(self.store.save, before, state, timed)
            except Exception as problem:  # the disk may have room again; until then nothing changes, and who asks hears
                log.exception("the state could not be written")
                answers = [(done, Refused(503, f"the state cannot be written: {problem}")) for done, _ in answers]
            else:
                self._become(state, timed)
            for done, refusal in answers:
                if not done.done():
                    done.set_exception(refusal) if refusal else done.set_result(None)

    def _become(self, state: State, told: list[dict[str, object]]) -> None:
        before, self.state = self.state, state
        for event in told:
            events_log.info("%s", msgspec.json.encode(event).decode())
        self.metrics.tell(told)
        if replace(before, leases={}) != replace(state, leases={}):
            self._changed.set()
            self._changed = asyncio.Event()
        wanted = {
            replica.commit.id: (name, replica.commit, replica.url)
            for name, replica in state.replicas.items()
            if replica.commit is not None and not replica.commit.driven
        }
        for number in [number for number in self._engines if number not in wanted]:
            self._engines.pop(number).cancel()
        for number, (name, commit, url) in wanted.items():
            if number not in self._engines:
                self._engines[number] = asyncio.create_task(self._drive(name, commit, url))

    async def _drive(self, replica: str, commit: Commit, url: str) -> None:
        started = time.perf_counter()
        try:
            await change(self._http, url, commit.version, self.settings.pause)
        except EngineFailed as problem:
            await self.tell(events.Driven(replica, commit.id, str(problem)))
            return
        self.metrics.paused.observe(time.perf_counter() - started)
        await self.tell(events.Driven(replica, commit.id))

    async def _tick_for_ever(self) -> None:
        while True:
            with contextlib.suppress(Refused):
                await self.tell(events.Tick())
            await asyncio.sleep(min(0.25, self.settings.lease_seconds / 8))


def _tag(found: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(found)).hexdigest()[:16]
