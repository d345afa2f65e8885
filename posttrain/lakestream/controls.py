"""The controls of a stream: what its table remembers beside its rows. Pure, no Lance.

A control is a fragment of one row with only the column `ctl`, a JSON object. Invariants: there is at most
one control for a key; whoever replaces it removes the old fragment in the same commit and also names the
key's *sentinel*, a fragment id that never exists, so that two writers of one key always conflict, whether
or not the control existed before.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from posttrain.lakestream.errors import StreamDamaged, StreamError

COLUMN = "ctl"
FORMAT = 1
STREAM_KEY = "stream"
UPKEEP_KEY = "upkeep"

_CURSOR_BYTES = 4096
_HOLDERS = 16  # that a producer's control remembers

Cursor = Any  # any small JSON value with an order: a number, a string, or a list of those


def sentinel(key: str) -> int:
    """The fragment id that stands for `key`. Two keys may share one; they then only conflict more often."""
    return 3_000_000_000 + zlib.crc32(key.encode()) % 1_000_000_000


@dataclass(frozen=True)
class Layer:
    """What one generation of a group had acknowledged: of the rows with id % count == i, those below offsets[i]."""

    count: int
    offsets: tuple[int, ...]

    def covers(self, row_id: int) -> bool:
        return row_id < self.offsets[row_id % self.count]


@dataclass(frozen=True)
class Group:
    """A group of consumers. `start` is where this generation begins; `layers` is what older ones have done.

    `commits` is the total of all producers' commits that had been made at `start`.
    """

    count: int
    generation: int = 0
    start: int = 0
    layers: tuple[Layer, ...] = ()
    commits: int = 0


@dataclass(frozen=True)
class Settings:
    """What all producers of a stream keep to. 0 means no bound.

    A producer waits while more than `max_lag_rows` rows, or more than `max_lag_commits` commits, are not
    acknowledged by the slowest consumer of any group.
    """

    max_lag_rows: int = 0
    max_lag_commits: int = 0

    def __post_init__(self) -> None:
        for name, value in (("max_lag_rows", self.max_lag_rows), ("max_lag_commits", self.max_lag_commits)):
            if value < 0:
                raise StreamError("must not be negative", field=name, value=value, remedy="0 means no bound")


@dataclass(frozen=True)
class StreamControl:
    """The registry: everything that concerns all. Replaced by close, by a new group, by new settings."""

    closed: bool = False
    settings: Settings = Settings()
    groups: Mapping[str, Group] = field(default_factory=dict)

    key = STREAM_KEY


@dataclass(frozen=True)
class ProducerControl:
    """One producer: the holder (a random token) and its epoch, the cursor committed last, the totals of all commits.

    `past` remembers the last holders before this one, each with the total of commits at its end, so that one
    who was replaced while it waited for an answer can still learn what had become of its commit.
    """

    name: str
    holder: str
    epoch: int
    cursor: Cursor = None
    commits: int = 0
    rows: int = 0
    at: float = 0.0
    past: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        return producer_key(self.name)

    def commits_of(self, holder: str) -> int | None:
        """The total of commits when `holder` was replaced, or now where it is the holder; None if long forgotten."""
        return self.commits if holder == self.holder else dict(self.past).get(holder)

    def handed_to(self, holder: str, now: float) -> ProducerControl:
        """The control of the next epoch."""
        past = (*self.past, (self.holder, self.commits))[-_HOLDERS:]
        return replace(self, holder=holder, epoch=self.epoch + 1, at=now, past=past)


@dataclass(frozen=True)
class ConsumerControl:
    """One consumer's watermark: every row of its part below `offset` is dealt with.

    `commits` is the total of all producers' commits in the version that it had read to the end.
    """

    group: str
    index: int
    generation: int
    offset: int
    commits: int = 0
    at: float = 0.0

    @property
    def key(self) -> str:
        return consumer_key(self.group, self.index)


@dataclass(frozen=True)
class Mark:
    """At time `at` (seconds since 1970) the newest version was `version`, and every row id below `end` was taken."""

    at: float
    version: int
    end: int


@dataclass(frozen=True)
class UpkeepControl:
    """The maintainer's memory: when which version was current, and below which row id rows were removed."""

    marks: tuple[Mark, ...] = ()
    removed_below: int = 0
    removed_rows: int = 0

    key = UPKEEP_KEY


Body = StreamControl | ProducerControl | ConsumerControl | UpkeepControl
B = TypeVar("B", bound=Body, covariant=True)


@dataclass(frozen=True)
class Held(Generic[B]):
    """A control as it stands in a version: its body, and the fragment that holds it."""

    fragment: int
    body: B


@dataclass(frozen=True)
class Controls:
    """All controls of one version of the table."""

    stream: Held[StreamControl]
    upkeep: Held[UpkeepControl]
    producers: Mapping[str, Held[ProducerControl]] = field(default_factory=dict)
    consumers: Mapping[tuple[str, int], Held[ConsumerControl]] = field(default_factory=dict)

    def all(self) -> list[Held]:
        return [self.stream, self.upkeep, *self.producers.values(), *self.consumers.values()]

    @property
    def commits(self) -> int:
        """Commits with rows or a cursor, over all producers, since the stream was created."""
        return sum(held.body.commits for held in self.producers.values())

    @property
    def memory(self) -> UpkeepControl:
        return self.upkeep.body


def producer_key(name: str) -> str:
    return f"producer/{name}"


def consumer_key(group: str, index: int) -> str:
    return f"consumer/{group}/{index}"


def collect(found: Iterable[Held]) -> Controls | None:
    """The controls among `found`; None where the stream's own are missing, so that nothing was created yet."""
    stream: Held | None = None
    upkeep: Held | None = None
    producers: dict[str, Held] = {}
    consumers: dict[tuple[str, int], Held] = {}
    seen: set[str] = set()
    for held in found:
        body = held.body
        if body.key in seen:
            raise StreamDamaged(f"there are two controls for {body.key}", remedy="see `posttrain stream verify`")
        seen.add(body.key)
        if isinstance(body, StreamControl):
            stream = held
        elif isinstance(body, ProducerControl):
            producers[body.name] = held
        elif isinstance(body, ConsumerControl):
            consumers[body.group, body.index] = held
        else:
            upkeep = held
    return None if stream is None or upkeep is None else Controls(stream, upkeep, producers, consumers)


def encode(body: Body) -> str:
    """The JSON text that a control fragment holds."""
    if isinstance(body, StreamControl):
        groups = {
            name: [g.count, g.generation, g.start, [[x.count, list(x.offsets)] for x in g.layers], g.commits]
            for name, g in body.groups.items()
        }
        bounds = [body.settings.max_lag_rows, body.settings.max_lag_commits]
        value: dict[str, Any] = {"kind": "stream", "closed": body.closed, "groups": groups, "bounds": bounds}
    elif isinstance(body, UpkeepControl):
        marks = [[m.at, m.version, m.end] for m in body.marks]
        value = {"kind": "upkeep", "marks": marks, "below": body.removed_below, "removed": body.removed_rows}
    else:
        kind = "producer" if isinstance(body, ProducerControl) else "consumer"
        value = {"kind": kind} | body.__dict__
    return json.dumps(value | {"format": FORMAT}, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> Body:
    """The inverse of `encode`. Raises StreamDamaged for what no writer of this format writes."""
    value = json.loads(text)
    kind, version = value.pop("kind"), value.pop("format")
    if version > FORMAT:
        raise StreamDamaged("was written by a newer release", value=version, remedy="upgrade posttrain")
    if kind == "stream":
        groups = {
            name: Group(count, generation, start, tuple(Layer(c, tuple(o)) for c, o in layers), commits)
            for name, (count, generation, start, layers, commits) in value["groups"].items()
        }
        return StreamControl(value["closed"], Settings(*value["bounds"]), groups)
    if kind == "upkeep":
        marks = tuple(Mark(at, version, end) for at, version, end in value["marks"])
        return UpkeepControl(marks, value["below"], value["removed"])
    if kind == "producer":
        return ProducerControl(**value | {"past": tuple((holder, commits) for holder, commits in value["past"])})
    if kind == "consumer":
        return ConsumerControl(**value)
    raise StreamDamaged("holds a control of an unknown kind", value=kind)


def checked_cursor(cursor: Cursor, after: Cursor) -> Cursor:
    """`cursor` in its JSON form. StreamError unless it is small, has an order and comes after `after` (None: none)."""
    try:
        shown = json.dumps(cursor, allow_nan=False)
    except (TypeError, ValueError):
        raise _no_cursor(cursor, "is no JSON value") from None
    cursor = json.loads(shown)
    if len(shown) > _CURSOR_BYTES:
        raise _no_cursor(cursor, f"is longer than {_CURSOR_BYTES} bytes as JSON")
    if not _is_ordered(cursor):
        raise _no_cursor(cursor, "has no order")
    if after is not None and _shape(cursor) != _shape(after):
        raise _no_cursor(cursor, f"cannot be compared with the last one, {after!r},")
    if after is not None and not cursor > after:
        raise _no_cursor(cursor, f"does not come after {after!r}, which is committed")
    return cursor


def _no_cursor(value: object, why: str) -> StreamError:
    return StreamError(why, field="cursor", value=value, remedy="give a number, a string, or a list of those")


def _is_ordered(value: Cursor) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_ordered(item) for item in value)
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _shape(value: Cursor) -> Any:
    if isinstance(value, list):
        return tuple(_shape(item) for item in value)
    return "text" if isinstance(value, str) else "number"


def with_group(body: StreamControl, name: str, group: Group) -> StreamControl:
    return replace(body, groups={**body.groups, name: group})
