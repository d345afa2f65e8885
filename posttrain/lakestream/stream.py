"""A stream: one Lance table that is the lake and the queue. No broker, no sequencer.

    stream = Stream.create(uri, schema) / Stream.open(uri)
    producer = stream.producer("sampler-3")        # registers an epoch: every older holder of the name is fenced
    producer.append(rows, cursor=17)               # rows and cursor in one transaction
    stream.close()                                 # barrier: nothing commits after it, consumers end at it
    consumer = stream.consumer(index=0, count=4)   # the rows whose row id mod 4 is 0, in the order of ids
    stream.acknowledge(consumer)                   # publishes its offset: lag, admission, retention
    stream.maintain()                              # compaction, clean-up, retention

The object store's conditional put is the only coordination. See docs/lakestream.md for what is guaranteed.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from posttrain.lakestream import admission, changes, metrics, storage
from posttrain.lakestream.admission import Lag
from posttrain.lakestream.commit import Patience, commit, read_controls
from posttrain.lakestream.consumer import Consumer, Reading
from posttrain.lakestream.controls import Controls, ProducerControl, Settings
from posttrain.lakestream.description import Description, describe
from posttrain.lakestream.errors import StreamError, said
from posttrain.lakestream.events import emit
from posttrain.lakestream.maintenance import Keeper, Upkeep, maintain
from posttrain.lakestream.offsets import Part, end_of
from posttrain.lakestream.producer import Producer
from posttrain.lakestream.schemas import StreamSchema
from posttrain.lakestream.snapshot import Snapshot
from posttrain.lakestream.table import Identity, Table, answers
from posttrain.lakestream.upkeep import Policy
from posttrain.lakestream.verify import verify

TIMEOUT = 600.0  # seconds that an operation goes on trying while the store does not answer
UNBOUNDED, USUAL = Settings(), Policy()
_NAME = 200  # characters at most


class Stream:
    """A handle on a stream. Producers and consumers made from it have handles of their own; it may be shared."""

    def __init__(self, table: Table, timeout: float, wanted: StreamSchema | None = None):
        self._table, self.timeout, self._wanted = table, timeout, wanted
        self._lock = threading.Lock()
        self._label = storage.name_of(table.uri)

    @classmethod
    def create(
        cls, uri: str | Path, schema: pa.Schema | StreamSchema, *, settings: Settings = UNBOUNDED,
        storage_options: Mapping[str, str] | None = None, timeout: float = TIMEOUT,
    ) -> Stream:  # fmt: skip
        """The stream under `uri`, made now unless it is there with the same schema. Safe from many places at once.

        `storage_options` are Lance's (aws_access_key_id, aws_endpoint, …); without them the AWS variables count.
        Raises StreamError where something else is there.
        """
        where = storage.normalise(uri)
        wanted = schema if isinstance(schema, StreamSchema) else None
        identity = Identity(wanted.arrow, wanted.name, wanted.version) if wanted else Identity(schema)
        patience, options = Patience(timeout, where), storage.options(where, storage_options)
        table = patience.until_answered(lambda: Table.create(where, identity, options))
        _create_controls(table, settings, patience)
        return cls(table, timeout, wanted)

    @classmethod
    def open(
        cls, uri: str | Path, *, schema: StreamSchema | None = None,
        storage_options: Mapping[str, str] | None = None, timeout: float = TIMEOUT,
    ) -> Stream:  # fmt: skip
        """The stream under `uri`. With `schema` rows of older versions of it are upgraded as they are read.

        Raises StreamNotFound, and StreamError where the stream's schema is another or a newer one.
        """
        where = storage.normalise(uri)
        options = storage.options(where, storage_options)
        table = Patience(timeout, where).until_answered(lambda: Table.open(where, options))
        found = table.identity
        if schema is not None and not schema.accepts(found.name, found.version):
            shown = f"{found.name or 'unnamed'} version {found.version}"
            raise StreamError(
                f"holds {shown}, not {schema.name} up to version {schema.version}", field="uri", value=where
            )
        return cls(table, timeout, schema)

    @property
    def uri(self) -> str:
        return self._table.uri

    @property
    def schema(self) -> pa.Schema:
        """The rows' schema, as appended."""
        return self._table.identity.schema

    @property
    def closed(self) -> bool:
        return self._controls().stream.body.closed

    def producer(
        self, name: str, *, timeout: float | None = None, admission_timeout: float = float("inf"),
        upkeep: Policy | None = None,
    ) -> Producer:  # fmt: skip
        """Register the next epoch of `name`: every older holder is fenced, the cursor is the committed one.

        `timeout` bounds an append in seconds (the stream's unless given), `admission_timeout` the wait for
        consumers. With `upkeep` this process maintains the stream, in a thread, whenever it is due.
        Raises StreamClosed.
        """
        _check_name("name", name)
        table, holder = self._table.fork(), uuid.uuid4().hex
        mine: list[ProducerControl] = []

        def decide(controls: Controls) -> changes.Change | None:
            change = changes.register(controls, name, holder, time.time())
            if change is not None:
                mine[:] = change.write  # type: ignore[assignment]
            return change

        commit(table, decide, self._patience(timeout), look=not table.is_fresh)
        emit("registered", self._label, producer=name, epoch=mine[0].epoch, cursor=mine[0].cursor)
        return Producer(
            table, mine[0], timeout=timeout or self.timeout, admission_timeout=admission_timeout,
            after_commit=Keeper(self.maintain, upkeep).after_commit if upkeep else None,
        )  # fmt: skip

    def consumer(
        self, index: int = 0, count: int = 1, *, group: str | None = "default", offset: int | str | None = None,
        columns: Sequence[str] | None = None, filter: str | None = None, max_rows: int = 8192,
        max_latency: float = 0.5, rescale: bool = False, stop: int | None = None,
    ) -> Consumer:  # fmt: skip
        """Consumer `index` of the `count` of `group`: the rows whose row id mod `count` is `index`.

        `offset` is what the consumer's own checkpoint holds. Without one it begins at its watermark, which for
        a new group is the first row there is; "end" makes a new group begin after what is there. A group of
        None is not written down: it has no watermark and holds nothing back. `filter` is SQL over the rows.

        Another `count` than the group's is refused, unless with `rescale`: then what the old consumers had not
        acknowledged (all from `offset`, where that is given: they had all stopped there) is divided anew, and
        they can no longer acknowledge. `stop` ends the consumer before that row id.
        """
        _check_reading(index, count, offset, max_rows, max_latency)
        if group is not None:
            _check_name("group", group)
        table, patience = self._table.fork(), self._patience()
        controls = read_controls(table, patience)
        end, first = end_of(table.spans()), controls.memory.removed_below
        start = end if offset == "end" else first
        common = offset if isinstance(offset, int) else None
        part, generation, begin = Part(index, count), 0, start
        if group is not None:
            if rescale:
                commit(table, lambda now: changes.rescale(now, group, count, common), patience)
            else:
                commit(table, lambda now: changes.join(now, group, count, start), patience)
            controls = read_controls(table, patience)
            known = controls.stream.body.groups[group]
            part, generation = Part(index, count, known.layers), known.generation
            begin = max(changes.watermark(controls, group, index).offset, first)
        filter, upgrade = _checked_filter(table, filter), self._upgrade() if columns is None else None
        reading = Reading(
            group or "",
            generation,
            part,
            self._columns(columns),
            filter,
            max_rows,
            max_latency,
            self.timeout,
            stop,
            upgrade,
        )
        return Consumer(table, reading, begin if common is None else common)

    def acknowledge(self, consumer: Consumer) -> None:
        """Publish the consumer's offset: everything of its part before it is dealt with. Never moves back.

        Call it after the checkpoint that holds the offset is durable. Raises ConsumerFenced after a rescale.
        """
        if not consumer.reading.group:
            raise StreamError("has no group, so it has no watermark", field="consumer")
        mine = consumer.watermark
        with self._lock:
            commit(self._table, lambda controls: changes.acknowledge(controls, mine), self._patience())

    def lag(self) -> list[Lag]:
        """How far the acknowledgement of each consumer is behind, in rows and in commits; also set as metrics."""
        patience = self._patience()

        def count() -> list[Lag]:
            controls = read_controls(self._table, patience)
            return admission.lags(controls, self._table.spans(), self._table.ids_of)

        with self._lock:
            found = patience.until_answered(count)
        for lag in found:
            metrics.LAG_ROWS.labels(self._label, lag.group, lag.index).set(lag.rows)
            metrics.LAG_COMMITS.labels(self._label, lag.group, lag.index).set(lag.commits)
        return found

    def close(self) -> None:
        """Commit the barrier: no append and no registration lands after it, and consumers end at it."""
        with self._lock:
            commit(self._table, changes.close, self._patience())
        emit("closed", self._label)

    def configure(self, settings: Settings) -> None:
        """Change the bounds that producers keep to."""
        with self._lock:
            commit(self._table, lambda controls: changes.configure(controls, settings), self._patience())

    def maintain(self, policy: Policy = USUAL, *, force: bool = True) -> Upkeep:
        """Compact, remove what `policy` lets go, clean up old versions. Not forced, only where it is due."""
        keep = self._archiver(policy.archive) if policy.archive else None
        return maintain(self._table.fork(), policy, self.timeout, keep, force=force)

    def index(self, column: str) -> None:
        """Make a full-text index of a text column; maintenance takes later rows into it."""
        if self._columns([column]) and not pa.types.is_string(self.schema.field(column).type):
            raise StreamError("is no text column", field="column", value=column)
        table, patience = self._table.fork(), self._patience()

        def make() -> None:
            read_controls(table, patience)
            with answers(table.uri):
                table.dataset.create_scalar_index(column, "INVERTED", replace=True)

        patience.until_answered(make)

    def snapshot(self, end: int | None = None) -> Snapshot:
        """The rows with ids below `end` (without one: all that are there now), as a data set that stays as it is."""
        table = self._table.fork()
        controls = read_controls(table, self._patience())
        newest, first = end_of(table.spans()), controls.memory.removed_below
        if end is not None and not first <= end <= newest:
            raise StreamError(f"is not within the stream, [{first}, {newest}]", field="end", value=end)
        return Snapshot(self, table, newest if end is None else end)

    def describe(self) -> Description:
        """What the stream is and how it does, for people."""
        table = self._table.fork()
        controls = read_controls(table, self._patience())
        return describe(table, controls, self.lag())

    def verify(self, columns: Mapping[str, str] | None = None) -> list[str]:
        """What is wrong with the stored stream, a line each; see `verify.verify`."""
        table = self._table.fork()
        return verify(table, read_controls(table, self._patience()), columns)

    def _archiver(self, uri: str) -> Callable[[int], None]:
        """Copies the rows below a bound to the stream `uri`, each once: the copy's cursor is the offset reached."""

        def keep(below: int) -> None:
            target = Stream.create(
                uri, self._wanted or self.schema, storage_options=self._table.options or None, timeout=self.timeout
            )
            producer = target.producer("archive")
            begin = max(producer.cursor or 0, self._controls().memory.removed_below)
            source = self.consumer(group=None, offset=begin, stop=below)
            for rows in source:
                producer.append(rows, cursor=source.offset)
            if (producer.cursor or 0) < below:  # ids that no row has
                producer.append([], cursor=below)
            emit("archived", self._label, below=below, archive=uri)

        return keep

    def _columns(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        known = self.schema.names
        for name in columns or ():
            if name not in known:
                raise StreamError(
                    "is no column of the stream", field="columns", value=name, remedy=f"it has {', '.join(known)}"
                )
        return tuple(columns or known)

    def _upgrade(self) -> Callable[[pa.Table], pa.Table] | None:
        """How rows as stored become rows as wanted; None where they are already."""
        wanted, version = self._wanted, self._table.identity.version
        if wanted is None or wanted.version == version:
            return None
        return lambda rows: wanted.upgrade(rows, version)

    def _controls(self) -> Controls:
        with self._lock:
            return read_controls(self._table, self._patience())

    def _patience(self, timeout: float | None = None) -> Patience:
        return Patience(timeout or self.timeout, self._table.uri)


def _create_controls(table: Table, settings: Settings, patience: Patience) -> None:
    """Commit the stream's own control unless it is there: a creation that died half way is taken up here."""

    def is_there() -> bool:
        table.refresh()
        if table.controls() is not None:
            return True
        change = changes.create(settings)
        table.commit(change, *table.stage_for(change, pa.table({})))
        emit("created", storage.name_of(table.uri))
        return False

    while not patience.until_answered(is_there):
        pass


def _check_name(field: str, name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME or not name.isprintable():
        raise StreamError(f"must be 1 to {_NAME} printable characters", field=field, value=name)


def _check_reading(index: int, count: int, offset: int | str | None, max_rows: int, max_latency: float) -> None:
    for field, value in (("count", count), ("max_rows", max_rows)):
        if value < 1:
            raise StreamError("must be at least 1", field=field, value=value)
    if max_latency <= 0:
        raise StreamError("must be above 0 seconds", field="max_latency", value=max_latency)
    if not 0 <= index < count:
        raise StreamError(f"must be 0 to {count - 1}", field="index", value=index)
    if offset is not None and offset != "end" and (isinstance(offset, bool | str) or offset < 0):
        raise StreamError('must be a row id or "end"', field="offset", value=offset)


def _checked_filter(table: Table, filter: str | None) -> str | None:
    if filter is None:
        return None
    try:
        table.dataset.scanner(filter=filter).explain_plan()
    except (ValueError, OSError) as problem:
        raise StreamError(f"is no filter over these rows: {said(problem)}", field="filter", value=filter) from None
    return filter
