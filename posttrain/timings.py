"""What took how long, as rows of the stream `timings`: who, what, from when, how many seconds.

Invariant: measuring never holds up what is measured: rows are put into a list and appended by a thread, and a stream
that cannot be written is said once in the log and costs the measurements, nothing else.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)
EVERY = 2.0  # seconds between two appends


class Timings:
    """Of one process. `name` is its producer's. Use as a context manager; the last rows are appended at its end."""

    def __init__(self, uri: str, service: str, *, name: str):
        from posttrain.lakestream import TIMINGS, Stream
        from posttrain.lakestream.upkeep import Policy

        self._service = service
        self._producer = Stream.create(uri, TIMINGS).producer(name, upkeep=Policy())
        self._rows: list[dict[str, Any]] = []
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="timings", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def record(self, name: str, started: float, seconds: float, **attributes: Any) -> None:
        """`started` is in seconds since 1970."""
        row = {
            "service": self._service, "name": name,
            "started": datetime.datetime.fromtimestamp(started, datetime.UTC), "seconds": seconds,
            "attributes": json.dumps(attributes) if attributes else None,
        }  # fmt: skip
        with self._lock:
            self._rows.append(row)

    @contextmanager
    def timed(self, name: str, **attributes: Any) -> Iterator[None]:
        started, begun = time.time(), time.monotonic()
        try:
            yield
        finally:
            self.record(name, started, time.monotonic() - begun, **attributes)

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self._append()
        self._append()

    def _append(self) -> None:
        from posttrain.lakestream.errors import StreamError

        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            self._producer.append(rows)
        except StreamError as problem:
            log.warning("timings are lost: %s", problem)
