"""What the coordinator knows, and what follows from that alone.

Members are source ranks (`GROUP/RANK` of publishers) and ranks of replicas. `target` is the version that was decided
last, 0 before any; `moving` the one that is on its way. What an engine holds is never written down but read from what
its ranks say, so that it cannot be wrong. Times are by the coordinator's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from posttrain.etha.wire import Address, RankReport, SourceReport


class Source(Struct, frozen=True):
    group: str
    rank: int
    ranks: int
    epoch: int
    layout: str  # digest
    report: SourceReport


class Rank(Struct, frozen=True):
    replica: str
    rank: int
    ranks: int
    epoch: int
    wants: str  # digest
    address: Address
    report: RankReport


class Attempt(Struct, frozen=True):
    """One try to bring a version to a replica. `sources` and `ranks` are the epochs of those who take part, in order;
    `held` once every rank holds what its sources sent."""

    id: int
    version: int
    group: str
    sources: tuple[int, ...]
    ranks: tuple[int, ...]
    plan: str
    since: float
    held: bool = False


class Commit(Struct, frozen=True):
    """One try to have the engine change to what is held. `driven` once the engine has been told all."""

    id: int
    version: int
    since: float
    driven: bool


class Replica(Struct, frozen=True):
    """`lags`: it served when the target was decided, and may until its turn. `failures` since something went well."""

    ranks: int
    url: str
    attempt: Attempt | None = None
    commit: Commit | None = None
    lags: bool = False
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""


class Version(Struct, frozen=True):
    """`state` is moving, committed or aborted. `pushes` are the numbers of the push by member: others are another push
    of the same number, which an aborted one may have. `back`: the move is a roll back."""

    state: str
    group: str
    since: float
    ended: float | None = None
    reason: str = ""
    back: bool = False
    pushes: dict[str, int] = {}


class State(Struct, frozen=True):
    """`sources` are by "GROUP/RANK", `ranks` by "REPLICA/RANK", `leases` by kind and member. `highest` is the highest
    version that was ever decided; `checks` counts the checks of what ranks hold that were asked for."""

    counter: int = 0
    target: int = 0
    highest: int = 0
    moving: int | None = None
    checks: int = 0
    sources: dict[str, Source] = {}
    ranks: dict[str, Rank] = {}
    replicas: dict[str, Replica] = {}
    versions: dict[int, Version] = {}
    leases: dict[str, float] = {}

    def group(self, name: str) -> tuple[Source, ...] | None:
        """The source ranks of a group in order; None unless all are there."""
        found = sorted((s for s in self.sources.values() if s.group == name), key=lambda s: s.rank)
        return tuple(found) if found and [s.rank for s in found] == list(range(found[0].ranks)) else None

    def groups(self) -> dict[str, tuple[Source, ...]]:
        """The groups of sources of which all ranks are there, by name."""
        names = sorted({source.group for source in self.sources.values()})
        return {name: group for name in names if (group := self.group(name))}

    def members(self, replica: str) -> tuple[Rank, ...] | None:
        """The ranks of a replica in order; None unless all are there."""
        count = self.replicas[replica].ranks
        found = [self.ranks.get(f"{replica}/{rank}") for rank in range(count)]
        return tuple(rank for rank in found if rank) if all(found) else None

    def engine(self, replica: str) -> int | None:
        """The version that the engine holds; None where it may hold none, or is being changed."""
        members = self.members(replica)
        said = {rank.report.applied for rank in members} if members else {None}
        return said.pop() if len(said) == 1 and self.replicas[replica].commit is None else None

    def offering(self, version: int) -> str | None:
        """A group of which every rank offers the version; that which announced it, if it still does."""
        known = self.versions.get(version)
        able = [name for name, group in self.groups().items() if all(version in s.report.offers for s in group)]
        return known.group if known is not None and known.group in able else next(iter(able), None)

    def goes_on(self) -> bool:
        """Whether the publisher of the version on its way is still there, with the same push."""
        if self.moving is None:
            return False
        known = self.versions[self.moving]
        return self.pushes(known.group, self.moving) == known.pushes

    def pushes(self, group: str, version: int) -> dict[str, int]:
        """The numbers of the push of a version, of those ranks of a complete group that offer it."""
        there = self.group(group) or ()
        return {f"{s.group}/{s.rank}": s.report.offers[version] for s in there if version in s.report.offers}

    def holds(self, replica: str, version: int) -> bool:
        """Whether it could serve the version without anything being sent."""
        attempt = self.replicas[replica].attempt
        return self.engine(replica) == version or (
            attempt is not None and attempt.held and attempt.version == version and bool(self.members(replica))
        )

    def wanted(self, replica: str) -> int | None:
        """The version that should be brought to the replica; None for none."""
        version = self.moving if self.moving is not None else self.target
        behind = version > 0 and self.engine(replica) != version and self.replicas[replica].commit is None
        return version if behind else None

    def traffic(self) -> tuple[str, ...]:
        """The replicas that may take requests.

        Those whose engine holds the target. One that served before the target was decided goes on until its turn, and
        one that missed the target until another serves it.
        """
        # Before anything was decided every engine serves what it was started with.
        at = [n for n in self.replicas if (held := self.engine(n)) is not None and self.target in (0, held)]
        behind = (
            name
            for name, replica in self.replicas.items()
            if replica.lags and self.engine(name) not in (None, self.target)
            and (not at or self.holds(name, self.target))
        )  # fmt: skip
        return tuple(sorted([*at, *behind]))

    def phase(self, replica: str, traffic: Collection[str]) -> str:
        """For people: lost, updating, serving, ready, receiving or pending; `traffic` is what the method says."""
        known = self.replicas[replica]
        if self.members(replica) is None:
            return "lost"
        if known.commit is not None:
            return "updating"
        if known.attempt is not None:
            return "ready" if known.attempt.held else "receiving"
        return "serving" if replica in traffic else "pending"


def with_replica(state: State, name: str, **changes: object) -> State:
    changed = replace(state.replicas[name], **changes)
    return replace(state, replicas={**state.replicas, name: changed})


def without(mapping: Mapping[str, object], keys: Sequence[str]) -> dict:
    return {key: value for key, value in mapping.items() if key not in keys}
