"""Group commit: operations that wait share one transaction, and hear of it when it is on disk.

One thread writes. A sync to disk costs milliseconds and holds however many operations came meanwhile, so that
throughput does not depend on it. An operation that fails leaves the others be.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from posttrain.database import writing

T = TypeVar("T")


class Refused(Exception):
    """An operation that cannot be and has written nothing: `status` is HTTP's, the text is for the caller."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status, self.detail = status, detail


_MOST = 256  # operations in one transaction


class Writer:
    """`do(operation)` from any thread. An operation may be called again after a transaction that failed."""

    def __init__(self, engine: Engine, lock: int):
        self._engine, self._lock = engine, lock
        self._waiting: queue.SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def do(self, operation: Callable[[Connection], T]) -> Future[T]:
        """The operation's answer, once it is committed. Its exception, or the database's, where it was not."""
        future: Future[T] = Future()
        self._waiting.put((operation, future))
        return future

    def close(self) -> None:
        """Commit what waits, and take no more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            taken, ends = self._take()
            self._commit(taken)
            if ends:
                return

    def _take(self) -> tuple[list[tuple[Callable[[Connection], Any], Future[Any]]], bool]:
        taken = []
        item = self._waiting.get()
        while item is not None:
            taken.append(item)
            if len(taken) == _MOST or self._waiting.empty():
                return taken, False
            item = self._waiting.get()
        return taken, True

    def _commit(self, taken: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
        answers: list[tuple[Future[Any], Any, Refused | None]] = []
        try:
            with writing(self._engine, self._lock) as connection:
                for operation, future in taken:
                    try:
                        answers.append((future, operation(connection), None))
                    except Refused as problem:
                        answers.append((future, None, problem))
        except Exception as problem:  # the database's, or a defect of one operation: the others must not suffer
            if len(taken) == 1:
                taken[0][1].set_exception(problem)
            else:
                for item in taken:
                    self._commit([item])
            return
        for future, answer, refusal in answers:
            future.set_exception(refusal) if refusal else future.set_result(answer)
