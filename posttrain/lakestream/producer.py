"""A producer: appends rows and a cursor in one transaction, under a name that has one holder at a time.

Invariants: rows and cursor land together or not at all; after a newer holder has registered nothing of this
one lands; `append` returns only when the control in the newest version says that its rows are in.

A try costs two small files written, one commit, and one look at the newest version number. While nobody
else touches this producer's control or the stream's, both are known to hold without being read again:
fragments never change, so it is enough that they are still part of the version that is committed against.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from lance.fragment import FragmentMetadata

from posttrain.lakestream import changes, metrics
from posttrain.lakestream.admission import Backlog, backlog, must_wait
from posttrain.lakestream.changes import Change
from posttrain.lakestream.commit import Patience, read_controls
from posttrain.lakestream.contention import alone
from posttrain.lakestream.controls import Controls, Cursor, Held, ProducerControl, StreamControl, checked_cursor
from posttrain.lakestream.errors import AdmissionTimeout, ProducerFenced, StreamError
from posttrain.lakestream.events import emit
from posttrain.lakestream.offsets import end_of
from posttrain.lakestream.rows import Rows, conform
from posttrain.lakestream.storage import name_of
from posttrain.lakestream.table import Conflict, Landed, Table, Unanswered, size_of

_TRUSTED = 5.0  # seconds after which known controls are read again, so that a commit has few others to look through
_ADMISSION_WAIT = (0.02, 0.5)  # seconds between looks at the watermarks: first, longest


@dataclass(frozen=True)
class Committed:
    """Where an append landed: a version that holds it, its cursor, and its row ids in [first, end).

    Row ids of one append are contiguous. `first` equals `end` for an append without rows.
    """

    version: int
    cursor: Cursor
    first: int
    end: int


@dataclass(frozen=True)
class _Staged:
    """A change with its fragments, not committed yet."""

    change: Change
    controls: list[FragmentMetadata]
    data: list[FragmentMetadata]

    @property
    def control(self) -> ProducerControl:
        (body,) = self.change.write
        assert isinstance(body, ProducerControl)
        return body


class Producer:
    """Made by `Stream.producer`. Appends are one after the other; it may be shared by threads."""

    def __init__(self, table: Table, control: ProducerControl, *, timeout: float, admission_timeout: float,
                 after_commit: Callable[[int], None] | None = None):  # fmt: skip
        self._table, self._mine = table, control
        self._timeout, self._admission_timeout = timeout, admission_timeout
        self._after_commit = after_commit
        self._stream: Held[StreamControl] | None = None
        self._held: Held[ProducerControl] | None = None
        self._fence = -1  # the upkeep's control when the controls were read last; each fence replaces it
        self._known_at = float("-inf")
        self._in_doubt = False
        self._low, self._end = 0, 0
        self._lock = threading.Lock()
        self._label = name_of(table.uri)

    @property
    def name(self) -> str:
        return self._mine.name

    @property
    def epoch(self) -> int:
        return self._mine.epoch

    @property
    def cursor(self) -> Cursor:
        """What was committed last under this name; None before the first commit."""
        return self._mine.cursor

    def append(self, rows: Rows, cursor: Cursor = None) -> Committed:
        """Commit `rows` and `cursor` together; without a cursor the rows are counted.

        `rows` may be empty, so that a cursor can pass inputs that yield nothing. Raises ProducerFenced,
        StreamClosed, AdmissionTimeout (nothing was written), StreamError for rows or a cursor that do not fit,
        and StoreUnavailable, after which the same append may be tried again: what had landed is recognised.
        """
        table = conform(rows, self._table.identity.schema)
        with self._lock:
            if cursor is None:
                cursor = self._counted(table.num_rows)
            if self._in_doubt and (found := self._recognise(cursor)):
                return found
            checked_cursor(cursor, self._mine.cursor)
            self._admit()
            started = time.monotonic()
            committed = self._land(table, cursor)
            metrics.COMMIT_SECONDS.labels(self._label).observe(time.monotonic() - started)
            metrics.COMMITS.labels(self._label, self.name).inc()
            metrics.ROWS.labels(self._label, self.name).inc(table.num_rows)
        emit("acknowledged", self._label, producer=self.name, version=committed.version, cursor=cursor)
        if self._after_commit is not None:
            self._after_commit(committed.version)
        return committed

    async def append_async(self, rows: Rows, cursor: Cursor = None) -> Committed:
        """`append` in a thread. Await each before the next: the cursor decides the order, not the event loop."""
        return await asyncio.to_thread(self.append, rows, cursor)

    def _land(self, rows: pa.Table, cursor: Cursor) -> Committed:
        patience, staged, fence = self._patience(), None, self._fence
        self._in_doubt = True  # until a return: whatever is raised leaves the outcome open
        while True:
            if time.monotonic() - self._known_at > _TRUSTED and (found := self._catch_up(patience)):
                return found
            change = self._decide(cursor, rows.num_rows)
            self._known_at = float("-inf")
            try:
                if staged is None or self._fence != fence:
                    staged, fence = self._stage(change, rows), self._fence
                with alone(self._table.uri):
                    landed = self._table.commit(staged.change, staged.controls, staged.data)
                emit("committed", self._label, producer=self.name, version=landed.version)
                if self._stands(landed):
                    metrics.BYTES.labels(self._label, self.name).inc(size_of(staged.data))
                    return self._accept(Held(landed.controls[0], staged.control), landed.version)
                staged = None
                metrics.GHOSTS.labels(self._label).inc()
            except Conflict as problem:
                # what did not land now is a ghost at most where a fence came since, and then it is staged anew
                metrics.CONFLICTS.labels(self._label).inc()
                patience.pause(problem)
            except Unanswered as problem:
                staged = None
                patience.pause(problem)

    def _decide(self, cursor: Cursor, rows: int) -> Change:
        assert self._stream is not None and self._held is not None
        try:
            return changes.append(self._stream, self._held, self._mine, cursor, rows, time.time())
        except StreamError:
            self._in_doubt = False
            raise

    def _stage(self, change: Change, rows: pa.Table) -> _Staged:
        emit("staging", self._label, producer=self.name)
        controls, data = self._table.stage_for(change, rows)
        emit("staged", self._label, producer=self.name)
        return _Staged(change, controls, data)

    def _stands(self, landed: Landed) -> bool:
        """Whether the commit is in the newest version, and not on a number that was cleaned up meanwhile."""
        assert self._stream is not None
        self._table.refresh()
        emit("verified", self._label, producer=self.name, version=self._table.version)
        if not self._table.holds(landed.controls):
            return False
        if self._table.holds([self._stream.fragment]):
            self._known_at = time.monotonic()
        return True

    def _catch_up(self, patience: Patience) -> Committed | None:
        """Know the controls of the newest version, by seeing that they are those known already, or by reading them."""
        known = [held.fragment for held in (self._stream, self._held) if held is not None]
        try:
            self._table.refresh()
        except Unanswered as problem:
            patience.pause(problem)
            return self._look(patience)
        if len(known) == 2 and self._table.holds([*known, self._fence]):
            self._known_at = time.monotonic()
            return None
        return self._look(patience)

    def _look(self, patience: Patience) -> Committed | None:
        """Read the controls; what this holder's last try landed, if it did and was not known to."""
        controls = read_controls(self._table, patience)
        held = controls.producers.get(self.name)
        if held is None:
            raise StreamError(f"producer {self.name!r} is gone from the stream", remedy="register again")
        self._stream, self._held = controls.stream, held
        self._fence = controls.upkeep.fragment
        landed = changes.has_landed(held, self._mine)
        if held.body.epoch != self.epoch:
            self._in_doubt = False
            if landed:  # said once, of the append that is fenced now
                self._mine = replace(self._mine, commits=self._mine.commits + 1)
            emit("fenced", self._label, producer=self.name, mine=self.epoch, epoch=held.body.epoch, landed=landed)
            raise ProducerFenced(self.name, self.epoch, held.body.epoch, landed=landed)
        self._known_at = time.monotonic()
        if not landed:
            return None
        return self._accept(held, self._table.version)

    def _recognise(self, cursor: Cursor) -> Committed | None:
        found = self._look(self._patience())
        self._in_doubt = False
        return found if found is not None and found.cursor == cursor else None

    def _accept(self, held: Held[ProducerControl], version: int) -> Committed:
        # a commit's control is its first fragment and its rows follow, so their ids follow the control's
        first = self._table.row_id(held.fragment) + 1
        self._end = first + held.body.rows - self._mine.rows
        self._held, self._mine, self._in_doubt = held, held.body, False
        return Committed(version, held.body.cursor, first, self._end)

    def _patience(self) -> Patience:
        return Patience(self._timeout, self._table.uri)

    def _counted(self, rows: int) -> int:
        last = self._mine.cursor
        if last is not None and not isinstance(last, int):
            raise StreamError("is needed: the last one is no count of rows", field="cursor", value=last)
        if not rows:
            raise StreamError("is needed for an append without rows", field="cursor")
        return (last or 0) + rows

    def _admit(self) -> None:
        """Wait until the consumers are within the stream's bounds. Raises AdmissionTimeout."""
        patience = self._patience()
        if self._stream is None or time.monotonic() - self._known_at > _TRUSTED:
            self._look(patience)
        assert self._stream is not None
        bounds = self._stream.body.settings
        if not (bounds.max_lag_rows or bounds.max_lag_commits):
            return
        if not bounds.max_lag_commits and self._end - self._low <= bounds.max_lag_rows:
            return  # row ids have gaps, so the rows are fewer still
        controls, behind = self._backlog(patience)
        if not must_wait(controls, behind):
            return
        emit("waiting", self._label, producer=self.name, rows=behind.rows, commits=behind.commits)
        self._wait_for_room(behind)

    def _wait_for_room(self, behind: Backlog) -> None:
        started, (wait, longest) = time.monotonic(), _ADMISSION_WAIT
        with metrics.WAITING.labels(self._label).track_inprogress():
            while True:
                if time.monotonic() - started + wait > self._admission_timeout:
                    raise AdmissionTimeout(
                        f"the consumers are {behind.rows} rows and {behind.commits} commits behind, and did not "
                        f"catch up in {self._admission_timeout:g} s",
                        remedy="see `posttrain stream lag`; the same append may be tried again",
                    )
                time.sleep(wait)
                metrics.WAIT_SECONDS.labels(self._label).inc(wait)
                wait = min(longest, wait * 1.5)
                controls, behind = self._backlog(self._patience())
                if controls.stream.body.closed or not must_wait(controls, behind):
                    return

    def _backlog(self, patience: Patience) -> tuple[Controls, Backlog]:
        def count() -> tuple[Controls, Backlog]:
            self._look(patience)
            controls, spans = self._table.controls(), self._table.spans()
            assert controls is not None
            self._end = end_of(spans)
            groups = controls.stream.body.groups
            self._low = min((changes.lowest(controls, name)[0] for name in groups), default=self._end)
            return controls, backlog(controls, spans, self._table.ids_of)

        return patience.until_answered(count)
