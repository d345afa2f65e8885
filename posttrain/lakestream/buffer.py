"""Appends gathered into commits: rows go in one by one, a thread commits them by number, size and time.

Invariants: rows are committed in the order in which they were put, a cursor only together with all rows put
before it; a failed commit fails everything after it, so that no gap can arise.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import TracebackType

import pyarrow as pa

from posttrain.lakestream.controls import Cursor
from posttrain.lakestream.errors import StreamError
from posttrain.lakestream.producer import Committed, Producer
from posttrain.lakestream.rows import Rows, conform


class Buffer:
    """`put` rows from any thread; each `put` answers with a future that holds once its rows are committed.

    A commit is made when `max_rows` rows or `max_bytes` bytes are gathered, or `max_seconds` after the first
    of them. `put` blocks while two commits' worth is waiting, so that a slow store slows the caller down. From
    asyncio, await `asyncio.wrap_future(buffer.put(rows, cursor))`.
    """

    def __init__(
        self,
        producer: Producer,
        schema: pa.Schema,
        *,
        max_rows: int = 2500,
        max_bytes: int = 8 << 20,
        max_seconds: float = 1.0,
    ):
        self._producer, self._schema = producer, schema
        self._max_rows, self._max_bytes, self._max_seconds = max_rows, max_bytes, max_seconds
        self._waiting: list[tuple[pa.Table, Cursor, Future[Committed], float]] = []
        self._changed = threading.Condition()
        self._flushing, self._closing = 0, False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"lakestream-{producer.name}", daemon=True)
        self._thread.start()

    def put(self, rows: Rows, cursor: Cursor) -> Future[Committed]:
        """Rows to be committed with `cursor`, or with a later one. Raises StreamError for rows that do not fit."""
        table, future = conform(rows, self._schema), Future[Committed]()
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._closing or not self._is_full(2))
            if self._failure is not None:
                raise self._failure
            if self._closing:
                raise StreamError("the buffer is closed")
            self._waiting.append((table, cursor, future, time.monotonic()))
            self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Commit what was put, now. Raises what a commit raised."""
        with self._changed:
            futures = [future for _, _, future, _ in self._waiting]
            self._flushing += 1
            self._changed.notify_all()
        try:
            for future in futures:
                future.result()
        finally:
            with self._changed:
                self._flushing -= 1
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """`flush`, and take no more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_full(self, times: int = 1) -> bool:
        rows = sum(table.num_rows for table, *_ in self._waiting)
        size = sum(table.nbytes for table, *_ in self._waiting)
        return rows >= times * self._max_rows or size >= times * self._max_bytes

    def _is_due(self) -> bool:
        if not self._waiting:
            return self._closing
        age = time.monotonic() - self._waiting[0][3]
        return bool(self._flushing) or self._closing or self._is_full() or age >= self._max_seconds

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    self._changed.wait(self._max_seconds if self._waiting else None)
                taken = self._take()
                self._changed.notify_all()
            if not taken:
                return
            self._commit(taken)

    def _take(self) -> list[tuple[pa.Table, Cursor, Future[Committed], float]]:
        """What goes into the next commit: up to the bounds, at least one."""
        rows = size = count = 0
        for table, *_ in self._waiting:
            if count and (rows + table.num_rows > self._max_rows or size + table.nbytes > self._max_bytes):
                break
            rows, size, count = rows + table.num_rows, size + table.nbytes, count + 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _commit(self, taken: list[tuple[pa.Table, Cursor, Future[Committed], float]]) -> None:
        try:
            committed = self._producer.append(pa.concat_tables([table for table, *_ in taken]), taken[-1][1])
        except BaseException as problem:
            with self._changed:
                self._failure = problem
                failed, self._waiting = taken + self._waiting, []
                self._changed.notify_all()
            for _, _, future, _ in failed:
                future.set_exception(problem)
            return
        for _, _, future, _ in taken:
            future.set_result(committed)
