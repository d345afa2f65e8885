"""What can happen. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.etha.wire import Address, RankReport, SourceReport


@dataclass(frozen=True)
class SourceJoins:
    group: str
    rank: int
    ranks: int
    layout: str


@dataclass(frozen=True)
class RankJoins:
    replica: str
    rank: int
    ranks: int
    wants: str
    address: Address
    url: str
    applied: int | None


@dataclass(frozen=True)
class SourceSays:
    """`key` is GROUP/RANK."""

    key: str
    epoch: int
    report: SourceReport


@dataclass(frozen=True)
class RankSays:
    """`key` is REPLICA/RANK."""

    key: str
    epoch: int
    report: RankReport


@dataclass(frozen=True)
class Leaves:
    """`kind` is sources or ranks."""

    kind: str
    key: str
    epoch: int


@dataclass(frozen=True)
class Driven:
    """The engine of a replica has been told all of a commit; `failure` is what went wrong, if anything."""

    replica: str
    commit: int
    failure: str = ""


@dataclass(frozen=True)
class Abort:
    version: int
    reason: str = "aborted by hand"


@dataclass(frozen=True)
class RollBack:
    version: int


@dataclass(frozen=True)
class Check:
    """Have every rank look at what it holds."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = SourceJoins | RankJoins | SourceSays | RankSays | Leaves | Driven | Abort | RollBack | Check | Tick
