"""A consumer: reads its part of the rows in the order of row ids, from an offset that its user keeps.

Invariants: a row is handed out once for an offset that moves on; `offset` is always past every row handed out
and before every row that was not; nothing is skipped because it was compacted or committed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from posttrain.lakestream import metrics
from posttrain.lakestream.commit import Patience, read_controls
from posttrain.lakestream.controls import ConsumerControl, Controls
from posttrain.lakestream.errors import OffsetRemoved
from posttrain.lakestream.offsets import Chunk, Part, end_of, next_chunk
from posttrain.lakestream.storage import name_of
from posttrain.lakestream.table import Table, Unanswered

_FIRST_WAIT = 0.01  # seconds; doubled up to the consumer's `max_latency`


@dataclass(frozen=True)
class Reading:
    """What a consumer reads: its group's name ("" for none) and generation, its part, columns, filter, sizes.

    `filter` is SQL over the stream's columns, evaluated by Lance while it reads. `max_rows` bounds a poll,
    `max_latency` the seconds between two looks at the newest version, `timeout` those without an answer of the
    store; nothing at or after `stop` is read. `upgrade` makes rows as stored into rows as wanted.
    """

    group: str
    generation: int
    part: Part
    columns: tuple[str, ...]
    filter: str | None
    max_rows: int
    max_latency: float
    timeout: float
    stop: int | None = None
    upgrade: Callable[[pa.Table], pa.Table] | None = None


class Consumer:
    """Made by `Stream.consumer`. Not for use from two threads at once."""

    def __init__(self, table: Table, reading: Reading, offset: int):
        self._table, self.reading = table, reading
        self._offset = offset
        self._end = -1  # of the version at hand; -1 where none has been looked at
        self._commits = 0
        self._drained_commits = 0
        self._closed = False
        self._label = name_of(table.uri)

    @property
    def offset(self) -> int:
        """The next row id to look at. Save it together with what was made of the rows before it."""
        return self._offset

    @property
    def ended(self) -> bool:
        """Whether everything of this part has been handed out, and the stream is closed or `stop` is reached."""
        stop = self.reading.stop
        return (stop is not None and self._offset >= stop) or (self._closed and self._offset >= self._end)

    @property
    def watermark(self) -> ConsumerControl:
        """What acknowledging this consumer now would publish."""
        part = self.reading.part
        return ConsumerControl(
            self.reading.group, part.index, self.reading.generation, self._offset, self._drained_commits, time.time()
        )

    def poll(self, timeout: float = 0.0) -> pa.Table:
        """The next rows, at most `max_rows`; none where there are none for `timeout` seconds, or none ever again.

        Fewer where the version at hand has no more: what is there is handed out before the store is asked for newer.
        A filter counts after `max_rows`, so that a poll is bounded whatever the filter leaves. Raises
        OffsetRemoved where retention has taken rows that this consumer had not read, and StoreUnavailable
        after the stream's time-out without an answer.
        """
        ends, wait = time.monotonic() + timeout, min(_FIRST_WAIT, self.reading.max_latency)
        patience = Patience(self.reading.timeout, self._table.uri)
        while True:
            try:
                rows = self._next(patience)
            except Unanswered as problem:  # files cleaned up under a version that is no longer the newest, too
                self._end = -1
                patience.pause(problem)
                continue
            if rows is not None and rows.num_rows:
                metrics.READ_ROWS.labels(self._label, self.reading.group).inc(rows.num_rows)
                return rows
            if rows is not None:
                continue  # a stretch without rows of this part, or for this filter
            left = ends - time.monotonic()
            if self.ended or left <= 0:
                return self.schema.empty_table()
            time.sleep(min(wait, left))
            wait = min(wait * 2, self.reading.max_latency)

    def __iter__(self) -> Iterator[pa.Table]:
        """Tables of rows as they come, until the stream is closed and read to its end."""
        while not self.ended:
            rows = self.poll(timeout=3600.0)
            if rows.num_rows:
                yield rows

    def _next(self, patience: Patience) -> pa.Table | None:
        """The next chunk's rows, maybe none of them wanted; None at the end of the newest version."""
        if self.ended or (self._offset >= self._end and not self._look(patience)):
            return None
        chunk = next_chunk(
            self._table.spans(), self._offset, self.reading.max_rows, self.reading.part, self._table.ids_of
        )
        if chunk is None:
            self._offset, self._drained_commits = max(self._offset, self._end), self._commits
            return None
        if self.reading.stop is not None:
            chunk = replace(chunk, end=min(chunk.end, self.reading.stop))
        rows = self._read(chunk)
        self._offset = chunk.end
        if self._offset >= self._end:
            self._drained_commits = self._commits
        return rows

    def _look(self, patience: Patience) -> bool:
        """Move to the newest version; whether there is one that was not read to the end."""
        if self._closed and self._end >= 0:
            return False
        if self._end >= 0 and self._table.latest() == self._table.version:
            return False
        controls = read_controls(self._table, patience)
        self._end = end_of(self._table.spans())
        self._closed, self._commits = controls.stream.body.closed, controls.commits
        self._must_be_kept(controls)
        if self._offset >= self._end:
            self._drained_commits = self._commits
        return True

    def _must_be_kept(self, controls: Controls) -> None:
        below = controls.memory.removed_below
        if self._offset < below:
            raise OffsetRemoved(
                f"rows below offset {below} were removed", field="offset", value=self._offset,
                remedy=f"read them from the archive, or begin at {below}",
            )  # fmt: skip

    def _read(self, chunk: Chunk) -> pa.Table:
        part, wanted = self.reading.part, self.reading.filter
        predicate = part.predicate(chunk.begin, chunk.end)
        rows = self._table.scan(
            chunk.fragments, self.reading.columns, f"({predicate}) AND ({wanted})" if wanted else predicate
        )
        ids = rows["_rowid"]
        if part.layers:
            mask = part.mask(ids.to_numpy())
            rows, ids = rows.filter(pa.array(mask)), ids.filter(pa.array(mask))
        if len(ids) > 1 and not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
            rows = rows.sort_by("_rowid")
        return self.finish(rows.select(list(self.reading.columns)))

    def finish(self, rows: pa.Table) -> pa.Table:
        """`rows` as Lance gives them in the schema that `poll` gives."""
        rows = rows.cast(self._stored)
        return self.reading.upgrade(rows) if self.reading.upgrade else rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the tables that `poll` gives."""
        empty = self._stored.empty_table()
        return self.reading.upgrade(empty).schema if self.reading.upgrade else self._stored

    @property
    def _stored(self) -> pa.Schema:
        whole = self._table.identity.schema
        return pa.schema([whole.field(name) for name in self.reading.columns])
