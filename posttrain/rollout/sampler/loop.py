"""The loop of the sampler: begin groups while there is room, append those that have ended, follow the trainer.

Invariants: a group's rows and its number in the cursor are one commit, so that each group leaves exactly once over any
number of crashes; a group that was under way at a crash begins again under its own number.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from posttrain.lakestream import Consumer, Producer
from posttrain.rollout.environments.base import Task
from posttrain.rollout.sampler.admission import Situation, room
from posttrain.rollout.sampler.cursor import Left
from posttrain.rollout.sampler.engines import EngineLook
from posttrain.rollout.sampler.group import Made, Maker
from posttrain.rollout.sampler.lengths import Lengths, block_order, task_of
from posttrain.rollout.sampler.pressure import Pressure, next_cap
from posttrain.rollout.sampler.states import States, state_of
from posttrain.timings import Timings

log = logging.getLogger(__name__)
TICK = 0.05  # seconds between two looks at the trainer's progress
LOOK = 1.0  # seconds between two looks at the engines' caches


@dataclass
class Sampler:
    """`experience` is the producer, `progress` a consumer of the trainer's stream; `timings` may be left out."""

    maker: Maker
    tasks: Sequence[Task]
    experience: Producer
    progress: Consumer
    look: EngineLook
    timings: Timings | None = None
    most_groups: int = 0  # to begin in all; 0: no end
    _lengths: Lengths = field(default_factory=Lengths)

    def __post_init__(self) -> None:
        self.left = Left.from_cursor(self.experience.cursor)
        self._order = self._numbers()
        self._ended: asyncio.Queue[Made] = asyncio.Queue()
        self._flying: set[asyncio.Task[None]] = set()
        self.begun = self.left.count  # groups, over all starts
        self._trained = self._spent = 0
        self._failed: BaseException | None = None
        self._states = States(self._tell_state, time.time)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, or until all groups have left. What is in flight at `stop` is given up: it begins anew."""
        appender = asyncio.create_task(self._append())
        watcher = asyncio.create_task(self._watch())
        try:
            while not stop.is_set() and not self._done:
                for task in (appender, watcher):
                    if task.done():
                        task.result()
                if self._failed is not None:
                    raise self._failed
                await self._begin()
                await asyncio.sleep(TICK)
        finally:
            self._states.be(None)
            for task in (*self._flying, watcher):
                task.cancel()
            await asyncio.gather(*self._flying, watcher, return_exceptions=True)
            settled = asyncio.create_task(self._ended.join())
            await asyncio.wait([settled, appender], return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
            appender.cancel()
            await asyncio.gather(appender, return_exceptions=True)

    @property
    def _done(self) -> bool:
        return bool(self.most_groups) and self.left.count >= self.most_groups

    async def _begin(self) -> None:
        """Begin what may begin."""
        await asyncio.to_thread(self._follow)
        versions = await self.look.versions()
        sampling, admission = min(versions, default=self._trained), self.maker.admission
        self._states.be(state_of(
            in_flight=len(self._flying), healthy=bool(versions), trained=self._trained, sampling=sampling,
        ))  # fmt: skip
        if not versions:
            return
        situation = Situation(sampling=sampling, trained=self._trained, begun=self.begun, spent=self._spent)
        free = room(
            situation, max_staleness=admission.max_staleness, groups_per_update=admission.groups_per_update,
            buffer_groups=admission.buffer_groups,
        )  # fmt: skip
        waiting = self.maker.slots.cap // admission.group_size + 2 - len(self._flying)
        more = self.most_groups - self.begun if self.most_groups else free
        for _ in range(max(0, min(free, waiting, more))):
            self.begun += 1
            task = asyncio.create_task(self._make(next(self._order)))
            self._flying.add(task)
            task.add_done_callback(self._landed)
        if self._flying:
            self._states.be("sampling")  # not only from the next look on: by then they may have landed

    async def _make(self, number: int) -> None:
        task = self.tasks[task_of(number, len(self.tasks), seed=self.maker.seed)]
        started, begun = time.time(), time.monotonic()
        made = await self.maker.group(number, task)
        for tokens in made.sampled:
            self._lengths.saw(task.id, tokens)
        if self.timings is not None:
            policy, environment = (sum(getattr(t, k) for t in made.times) for k in ("policy", "environment"))
            self.timings.record(
                "group", started, time.monotonic() - begun, group=number, policy=round(policy, 4),
                environment=round(environment, 4), reward=round(sum(made.judged), 4), tokens=sum(made.sampled),
            )  # fmt: skip
        self._ended.put_nowait(made)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("the sampler ends", exc_info=problem)
            self._failed = problem

    async def _append(self) -> None:
        """One commit for all groups that have ended meanwhile."""
        while True:
            made = [await self._ended.get()]
            while not self._ended.empty():
                made.append(self._ended.get_nowait())
            left = Left(self.left.below, set(self.left.beyond))
            for one in made:
                left.add(one.number)
            await self.experience.append_async([row for one in made for row in one.rows], left.to_cursor())
            self.left = left
            for _ in made:
                self._ended.task_done()

    async def _watch(self) -> None:
        """Follow the engines' caches."""
        before: list[Pressure] = []
        slots, admission = self.maker.slots, self.maker.admission
        while True:
            await asyncio.sleep(LOOK)
            now = await self.look.pressures()
            cap = next_cap(
                slots.cap, now, before, least=admission.least_concurrency, most=admission.concurrency,
                high=admission.cache_high,
            )  # fmt: skip
            if cap != slots.cap:
                await slots.resize(cap)
            before = now or before

    def _follow(self) -> None:
        """What the trainer has said last."""
        while (rows := self.progress.poll()).num_rows:
            last = rows.slice(rows.num_rows - 1).to_pylist()[0]
            self._trained, self._spent = last["version"], last["trained"] + last["dropped"]

    def _numbers(self) -> Iterator[int]:
        """Groups that have not left, in the order in which they begin."""
        admission, seed = self.maker.admission, self.maker.seed
        size = max(1, admission.block * admission.groups_per_update)
        block = self.left.below // size
        gone = self.left
        while True:
            numbers = [n for n in range(block * size, (block + 1) * size) if n not in gone]
            if self.most_groups:
                numbers = [n for n in numbers if n < self.most_groups]
            tasks = {n: self.tasks[task_of(n, len(self.tasks), seed=seed)].id for n in numbers}
            expected = {n: self._lengths.expected(task) for n, task in tasks.items()}
            yield from block_order(numbers, expected, seed=seed, number=block) if admission.block else numbers
            block += 1

    def _tell_state(self, state: str, started: float, seconds: float) -> None:
        if self.timings is not None:
            self.timings.record(state, started, seconds)
