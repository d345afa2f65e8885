"""What people and routers are shown of the state (`GET /versions`): nothing in it is a secret."""

from __future__ import annotations

from msgspec import Struct

from posttrain.etha.coordinator.state import State
from posttrain.etha.wire import Checked


class VersionView(Struct, frozen=True):
    """`state`: moving, committed or aborted. `kept`: somebody offers it, so that it can be sent again."""

    version: int
    state: str
    publisher: str
    kept: bool
    since: float
    ended: float | None
    reason: str


class ReplicaView(Struct, frozen=True):
    """`version` is the engine's, null where it has none for sure. `traffic`: it may take requests."""

    replica: str
    url: str
    phase: str
    version: int | None
    traffic: bool
    ranks: int
    present: int
    receives: int | None
    moved: int
    resent: int
    failures: int
    reason: str


class PlanView(Struct, frozen=True):
    """The plan for one replica. `seconds` is what the simulator says for ranks on one host with its default rates."""

    replica: str
    publisher: str
    sources: int
    ranks: int
    tensors: int
    transfers: int
    buckets: int
    nbytes: int
    by_source: tuple[int, ...]
    by_rank: tuple[int, ...]
    seconds: float
    bottleneck: str


class ChecksView(Struct, frozen=True):
    """`ranks`: by replica and rank, what the rank last found in its staging, null where it has not looked yet."""

    number: int
    ranks: dict[str, Checked | None]


class PublisherView(Struct, frozen=True):
    publisher: str
    ranks: int
    present: int
    offers: tuple[int, ...]


class VersionsView(Struct, frozen=True):
    """`target` is the version to serve, 0 before any; `moving` the one on its way."""

    target: int
    moving: int | None
    highest: int
    versions: tuple[VersionView, ...]
    replicas: tuple[ReplicaView, ...]
    publishers: tuple[PublisherView, ...]


def checks(state: State) -> ChecksView:
    found = {key: rank.report.checked for key, rank in sorted(state.ranks.items())}
    there = {key: told if told is not None and told.number == state.checks else None for key, told in found.items()}
    return ChecksView(state.checks, there)


def versions(state: State) -> VersionsView:
    takes = state.traffic()
    replicas = []
    for name, replica in sorted(state.replicas.items()):
        there = [rank for rank in state.ranks.values() if rank.replica == name]
        receives = replica.attempt.version if replica.attempt is not None and not replica.attempt.held else None
        replicas.append(ReplicaView(
            name, replica.url, state.phase(name, takes), state.engine(name), name in takes, replica.ranks, len(there),
            receives,
            sum(rank.report.moved for rank in there), sum(rank.report.resent for rank in there), replica.failures,
            replica.reason,
        ))  # fmt: skip
    publishers = []
    for group in sorted({source.group for source in state.sources.values()}):
        ranks = [source for source in state.sources.values() if source.group == group]
        offers = set(ranks[0].report.offers).intersection(*(source.report.offers for source in ranks))
        publishers.append(PublisherView(group, ranks[0].ranks, len(ranks), tuple(sorted(offers))))
    listed = tuple(
        VersionView(
            number, known.state, known.group, state.offering(number) is not None, known.since, known.ended, known.reason
        )
        for number, known in sorted(state.versions.items())
    )
    return VersionsView(state.target, state.moving, state.highest, listed, tuple(replicas), tuple(publishers))
