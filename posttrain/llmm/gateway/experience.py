"""Ended trajectories as rows of the `experience` stream, each in it exactly once.

Invariants: trajectories are numbered as they end and appended in that order, the number being the producer's cursor:
so after a crash the stream itself says which of the journal's files are in it already. One thread appends; several
trajectories that ended meanwhile go into one commit.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from posttrain.llmm import ir
from posttrain.llmm.gateway.journal import Closed, Entry, Journal, Opened, TurnTaken, read
from posttrain.llmm.tokens.history import Row, Sampled, Taken, rows_of

JSON = dict[str, Any]
log = logging.getLogger(__name__)


def rows_from(entries: list[Entry]) -> list[JSON]:
    """The rows of one ended trajectory. Without turns there is nothing to train on, and no row."""
    opened = next(entry for entry in entries if isinstance(entry, Opened))
    closed = next(entry for entry in entries if isinstance(entry, Closed))
    taken = [entry for entry in entries if isinstance(entry, TurnTaken)]
    lines = rows_of([Taken(t.turn.parent, t.new, Sampled(t.ids, t.logprobs, t.policy)) for t in taken])
    return [_row(opened, closed, taken, line, number) for number, line in enumerate(lines)]


def _row(opened: Opened, closed: Closed, taken: list[TurnTaken], line: Row, number: int) -> JSON:
    turns = [taken[index].turn for index in line.turns]
    messages = [message for turn in turns for message in (*turn.seen, *((turn.said.message,) if turn.said else ()))]
    versions = [{"version": v, "start": a, "end": b} for v, a, b in ir.policy_versions(line.tokens)]
    return {
        "trajectory": opened.id if number == 0 else f"{opened.id}#{number}",  # a fork is a row of its own
        "task": opened.task,
        "group": opened.group,
        "messages": msgspec.json.encode(messages).decode(),
        "tokens": list(line.tokens.ids),
        "loss_mask": ir.loss_mask(line.tokens),
        "logprobs": None if line.tokens.logprobs is None else list(line.tokens.logprobs),
        "policy_versions": versions,
        "reward": closed.reward,
        "status": closed.status,
        "started": int(opened.started * 1e6),
        "seconds": closed.at - opened.started,
    }


class Appender:
    """Takes closed trajectories to the stream, in a thread. `failure` is what ended it, if something did."""

    def __init__(self, journal: Journal, uri: str, name: str):
        from posttrain.lakestream import EXPERIENCE, Stream

        self._journal = journal
        self._producer = Stream.create(uri, EXPERIENCE).producer(name)
        self._queue: queue.SimpleQueue[tuple[int, Path, Future[int]] | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="experience", daemon=True)
        self._thread.start()

    @property
    def cursor(self) -> int:
        """The number of the last trajectory that is in the stream."""
        cursor = self._producer.cursor
        return cursor if isinstance(cursor, int) else 0

    def put(self, number: int, path: Path) -> Future[int]:
        """The future holds the number of rows, once they are committed."""
        future = Future[int]()
        self._queue.put((number, path, future))
        return future

    def close(self) -> None:
        """Append what was put, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ending = False
        while not ending:
            taken = [self._queue.get()]
            while not self._queue.empty():
                taken.append(self._queue.get())
            ending = None in taken
            batch = [item for item in taken if item is not None]
            if batch:
                self._append(batch)

    def _append(self, batch: list[tuple[int, Path, Future[int]]]) -> None:
        try:
            if self.failure is not None:
                raise self.failure
            rows = [rows_from(list(read(path))) for _, path, _ in batch]
            self._commit([row for each in rows for row in each], batch[-1][0])
            for (_, path, future), each in zip(batch, rows, strict=True):
                self._journal.settle(path)
                future.set_result(len(each))
        except Exception as problem:  # told to whoever waits, and by /health; the journal keeps the trajectories
            log.error("trajectories cannot be appended to the stream: %s", problem)
            self.failure = problem
            for _, _, future in batch:
                future.set_exception(problem)

    def _commit(self, rows: list[JSON], cursor: int) -> None:
        import pyarrow as pa

        from posttrain.lakestream import EXPERIENCE

        self._producer.append(pa.Table.from_pylist(rows, schema=EXPERIENCE.arrow), cursor)
