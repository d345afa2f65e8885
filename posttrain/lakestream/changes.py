"""What a commit must remove and what it must add, given the controls at its read version. Pure, no Lance.

Each function answers with a `Change`, or raises because the commit must not happen. The caller commits the
change with exactly the version that the controls were read at; a conflict means that they are out of date.

Invariant (fencing): for every change that must exclude another, the two remove a fragment id in common.

    append       its own control and sentinel
    register     its own control and sentinel; a new name also the stream's sentinel
    acknowledge  its own control and sentinel
    join         the stream's control and sentinel; a changed count also the old consumers' controls and sentinels
    close        the stream's control and every sentinel, so that all of the above conflict with it
    remove       the upkeep control and sentinel, and the stream's sentinel
    fence        the upkeep control and every sentinel, so that none that began before it can land after it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posttrain.lakestream.controls import (
    STREAM_KEY,
    UPKEEP_KEY,
    Body,
    ConsumerControl,
    Controls,
    Cursor,
    Group,
    Held,
    Layer,
    Mark,
    ProducerControl,
    Settings,
    StreamControl,
    UpkeepControl,
    checked_cursor,
    consumer_key,
    producer_key,
    sentinel,
    with_group,
)
from posttrain.lakestream.errors import ConsumerFenced, ProducerFenced, StreamClosed, StreamError


@dataclass(frozen=True)
class Change:
    """Fragment ids to remove (controls, data, sentinels) and controls to write, each a fragment of its own.

    `what` says in a few words what the commit does; it is kept with the commit.
    """

    remove: tuple[int, ...]
    write: tuple[Body, ...]
    what: str


def create(settings: Settings) -> Change:
    keys = (sentinel(STREAM_KEY), sentinel(UPKEEP_KEY))
    return Change(keys, (StreamControl(settings=settings), UpkeepControl()), "create")


def register(controls: Controls, name: str, holder: str, now: float) -> Change | None:
    """Give `name` its next epoch, held by `holder`; cursor and totals stay. None where `holder` has had it."""
    held = controls.producers.get(name)
    if held is not None and held.body.commits_of(holder) is not None:
        return None
    if controls.stream.body.closed:
        raise _closed()
    if held is None:
        body = ProducerControl(name, holder, epoch=1, at=now)
        return Change((sentinel(producer_key(name)), sentinel(STREAM_KEY)), (body,), f"register {name} epoch=1")
    body = held.body.handed_to(holder, now)
    return Change(_replaced(held), (body,), f"register {name} epoch={body.epoch}")


def append(stream: Held[StreamControl], held: Held[ProducerControl], mine: ProducerControl, cursor: Cursor,
           rows: int, now: float) -> Change:  # fmt: skip
    """Commit `rows` and `cursor` under the control `mine`, which this holder knows as its last.

    Raises ProducerFenced where `held` has another epoch, StreamClosed after the barrier.
    """
    if held.body.epoch != mine.epoch:
        raise ProducerFenced(mine.name, mine.epoch, held.body.epoch, landed=False)
    if stream.body.closed:
        raise _closed()
    body = replace(mine, cursor=checked_cursor(cursor, mine.cursor), commits=mine.commits + 1, rows=mine.rows + rows)
    return Change(_replaced(held), (replace(body, at=now),), f"append {mine.name} rows={rows} cursor={body.cursor!r}")


def has_landed(held: Held[ProducerControl], mine: ProducerControl) -> bool | None:
    """Whether the append that follows `mine` is in the table; None where too many holders have come since."""
    commits = held.body.commits_of(mine.holder)
    return None if commits is None else commits == mine.commits + 1


def close(controls: Controls) -> Change | None:
    """The barrier; None where it stands already."""
    if controls.stream.body.closed:
        return None
    gone = (controls.stream.fragment, *_every_sentinel(controls))
    return Change(gone, (replace(controls.stream.body, closed=True),), "close")


def fence(controls: Controls, mark: Mark, keep: tuple[Mark, ...]) -> Change:
    """Nothing that read a version before this commit lands after it; `keep` are the marks still remembered."""
    memory = replace(controls.memory, marks=(*keep, mark))
    return Change(
        (controls.upkeep.fragment, *_every_sentinel(controls)), (memory,), f"fence versions up to {mark.version}"
    )


def remove(controls: Controls, fragments: tuple[int, ...], below: int, rows: int) -> Change:
    """Take data `fragments`, of `rows` rows with ids below `below`, out of the table.

    Conflicts with a new or changed group, which might want them. Watermarks only grow, so they need not be fenced.
    """
    memory = replace(controls.memory, removed_below=below, removed_rows=controls.memory.removed_rows + rows)
    gone = (*fragments, *_replaced(controls.upkeep), sentinel(STREAM_KEY))
    return Change(gone, (memory,), f"remove rows={rows} below={below}")


def acknowledge(controls: Controls, mine: ConsumerControl) -> Change | None:
    """Publish a watermark; None where the table has it, or a later one. Raises ConsumerFenced."""
    group = controls.stream.body.groups.get(mine.group)
    if group is None or group.generation != mine.generation:
        raise ConsumerFenced(
            f"group {mine.group!r} was given another count", remedy="make the consumers of this group anew"
        )
    what = f"acknowledge {mine.group}/{mine.index} offset={mine.offset}"
    held = controls.consumers.get((mine.group, mine.index))
    if held is None:
        return Change((sentinel(consumer_key(mine.group, mine.index)),), (mine,), what)
    stale = held.body.generation == mine.generation and (held.body.offset, held.body.commits) >= (
        mine.offset, mine.commits,
    )  # fmt: skip
    return None if stale else Change(_replaced(held), (mine,), what)


def join(controls: Controls, name: str, count: int, start: int) -> Change | None:
    """Make group `name` with `count` consumers that begin at `start`; None where it is there with that count."""
    group = controls.stream.body.groups.get(name)
    if group is None:
        done = controls.commits if start else 0
        return _regroup(controls, name, Group(count, start=start, commits=done))
    if group.count != count:
        raise StreamError(
            f"group {name!r} has {group.count} consumers", field="count", value=count,
            remedy="give the same count, or rescale=True to divide the rows anew",
        )  # fmt: skip
    return None


def rescale(controls: Controls, name: str, count: int, common: int | None) -> Change | None:
    """Divide what group `name` has not done among `count` consumers; None where it has that count already.

    With `common` every old consumer is taken to have stopped at that offset. Without, each is taken to have
    stopped at its watermark, and the new ones leave out what the old ones had done beyond the lowest of these.
    """
    group = controls.stream.body.groups.get(name)
    if group is None or group.count == count:
        return join(controls, name, count, common or 0)
    members = [watermark(controls, name, index) for index in range(group.count)]
    done = min(member.commits for member in members)
    if common is not None:
        return _regroup(controls, name, Group(count, group.generation + 1, common, commits=done))
    offsets = tuple(member.offset for member in members)
    start = min(offsets)
    layers = tuple(x for x in (*group.layers, Layer(group.count, offsets)) if max(x.offsets) > start)
    return _regroup(controls, name, Group(count, group.generation + 1, start, layers, done))


def configure(controls: Controls, settings: Settings) -> Change | None:
    if controls.stream.body.settings == settings:
        return None
    return Change(_replaced(controls.stream), (replace(controls.stream.body, settings=settings),), "configure")


def watermark(controls: Controls, group: str, index: int) -> ConsumerControl:
    """What consumer `index` of `group` has acknowledged, or where it begins."""
    known = controls.stream.body.groups[group]
    held = controls.consumers.get((group, index))
    return held.body if held else ConsumerControl(group, index, known.generation, known.start, known.commits)


def lowest(controls: Controls, group: str) -> tuple[int, int]:
    """The lowest offset and the lowest total of commits that the consumers of `group` have acknowledged."""
    members = [watermark(controls, group, index) for index in range(controls.stream.body.groups[group].count)]
    return min(m.offset for m in members), min(m.commits for m in members)


def _regroup(controls: Controls, name: str, group: Group) -> Change:
    """The stream's control with `group` in it; an older generation's watermarks go, and its consumers conflict."""
    old = controls.stream.body.groups.get(name)
    sentinels = [sentinel(consumer_key(name, index)) for index in range(old.count if old else 0)]
    stale = [held.fragment for (of, _), held in controls.consumers.items() if of == name]
    gone = (*_replaced(controls.stream), *stale, *sentinels)
    return Change(gone, (with_group(controls.stream.body, name, group),), f"group {name} count={group.count}")


def _replaced(held: Held) -> tuple[int, int]:
    return held.fragment, sentinel(held.body.key)


def _every_sentinel(controls: Controls) -> tuple[int, ...]:
    groups = controls.stream.body.groups
    consumers = {consumer_key(name, index) for name, group in groups.items() for index in range(group.count)}
    keys = {STREAM_KEY, UPKEEP_KEY} | consumers | {producer_key(name) for name in controls.producers}
    return tuple(sorted({sentinel(key) for key in keys}))


def _closed() -> StreamClosed:
    return StreamClosed("the stream is closed", remedy="nothing commits after the barrier; create another stream")
