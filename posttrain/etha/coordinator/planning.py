"""Plans for replicas: made once for what the same ranks hold and want, and handed out by rank."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from posttrain.etha import plan as plans
from posttrain.etha.coordinator.settling import plan_name
from posttrain.etha.coordinator.state import State
from posttrain.etha.coordinator.store import Store
from posttrain.etha.coordinator.view import PlanView
from posttrain.etha.layout import SourceLayout, join
from posttrain.etha.plan import Bucket, Plan
from posttrain.etha.simulate import simulate
from posttrain.etha.slices import Want
from posttrain.etha.topology import one_host
from posttrain.etha.wire import RankPart, SourcePart
from posttrain.group_commit import Refused

_PLANS = 8  # kept in memory


@dataclass(frozen=True)
class Planned:
    """A plan and what it was made for."""

    plan: Plan
    wants: tuple[tuple[Want, ...], ...]


class Plans:
    """`took` hears how many seconds each plan was made in. For the event loop's thread."""

    def __init__(self, store: Store, bucket_bytes: int, took: Callable[[float], None]):
        self._store, self._bucket_bytes, self._took = store, bucket_bytes, took
        self._plans: dict[str, asyncio.Task[Planned]] = {}

    async def close(self) -> None:
        for task in self._plans.values():
            task.cancel()
        await asyncio.gather(*self._plans.values(), return_exceptions=True)

    async def specs(self, state: State) -> SourceLayout:
        """What the first group of sources that is complete holds, without its ranks. Raises Refused."""
        group = next(iter(state.groups().values()), None)
        if group is None:
            raise Refused(404, "no publisher has said yet what it holds")
        whole = await asyncio.to_thread(self._layout, [source.layout for source in group])
        return SourceLayout(whole.specs, (), whole.aliases)

    async def source_part(self, state: State, name: str, rank: int) -> SourcePart:
        return await asyncio.to_thread(_source_part, await self._plan(state, name), rank)

    async def rank_part(self, state: State, name: str, rank: int) -> RankPart:
        return await asyncio.to_thread(_rank_part, await self._plan(state, name), rank)

    async def plan_of(self, state: State, replica: str) -> PlanView:
        """How the replica would get a version of the first group of sources that is complete. Raises Refused."""
        members = state.members(replica) if replica in state.replicas else None
        name, group = next(iter(state.groups().items()), ("", None))
        if members is None or group is None:
            who = "every publisher lacks" if group is None else f"replica {replica!r} is not there or lacks"
            raise Refused(404, f"{who} a rank")
        layouts, wants = [s.layout for s in group], [r.wants for r in members]
        made = await self._made(plan_name(layouts, wants, self._bucket_bytes), layouts, wants)
        return await asyncio.to_thread(plan_view, replica, name, len(group), made.plan, len(members))

    async def _plan(self, state: State, name: str) -> Planned:
        if name in self._plans:
            return await self._made(name, [], [])
        for replica, known in state.replicas.items():
            if known.attempt is not None and known.attempt.plan == name:
                group, members = state.group(known.attempt.group), state.members(replica)
                if group and members:
                    return await self._made(name, [s.layout for s in group], [r.wants for r in members])
        raise Refused(404, f"there is no plan {name!r}, or it is not needed any more")

    async def _made(self, name: str, layouts: list[str], wants: list[str]) -> Planned:
        if name not in self._plans:
            for old in list(self._plans)[: 1 - _PLANS]:
                self._plans.pop(old).cancel()
            self._plans[name] = asyncio.create_task(asyncio.to_thread(self._make, layouts, wants))
        try:
            return await asyncio.shield(self._plans[name])
        except Exception as problem:  # a want that no source has is the replica's mistake, and whoever asks hears it
            self._plans.pop(name, None)
            raise Refused(409, f"no plan can be made: {problem}") from None

    def _make(self, layouts: list[str], digests: list[str]) -> Planned:
        source = self._layout(layouts)
        wants = tuple(msgspec.json.decode(self._store.blob(digest), type=tuple[Want, ...]) for digest in digests)
        started = time.perf_counter()
        made = plans.plan(
            source, wants, topology=one_host(len(source.ranks), len(wants)),
            bucket_bytes=self._bucket_bytes, ways=("direct",),
        )  # fmt: skip
        self._took(time.perf_counter() - started)
        return Planned(made, wants)

    def _layout(self, digests: list[str]) -> SourceLayout:
        return join([msgspec.json.decode(self._store.blob(digest), type=SourceLayout) for digest in digests])


def _source_part(made: Planned, rank: int) -> SourcePart:
    buckets = made.plan.for_source(rank)
    ranks = {destination for bucket in buckets for destination in bucket.destinations}
    return SourcePart(buckets, _wants(made.plan, buckets), {rank: made.wants[rank] for rank in sorted(ranks)})


def _rank_part(made: Planned, rank: int) -> RankPart:
    buckets = made.plan.for_destination(rank)
    return RankPart(buckets, _wants(made.plan, buckets))


def _wants(plan: Plan, buckets: Iterable[Bucket]) -> dict[int, Want]:
    wanted = {transfer.want for bucket in buckets for transfer in bucket.transfers}
    return {number: plan.wants[number] for number in sorted(wanted)}


def plan_view(replica: str, publisher: str, sources: int, made: Plan, ranks: int) -> PlanView:
    by_source, by_rank = [0] * sources, [0] * ranks
    for bucket in made.buckets:
        by_source[bucket.source] += bucket.nbytes * len(bucket.destinations)
        for rank in bucket.destinations:
            by_rank[rank] += bucket.nbytes
    predicted = simulate(made)
    return PlanView(
        replica, publisher, sources, ranks, len(made.table.names), sum(len(b.transfers) for b in made.buckets),
        len(made.buckets), sum(by_rank), tuple(by_source), tuple(by_rank), predicted.seconds, predicted.bottleneck,
    )  # fmt: skip
