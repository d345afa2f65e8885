"""Whole groups in the order of the stream, from a place that a checkpoint can hold.

Invariants: rows are taken in the order of the stream, each once; a place is (offset, rows used since it), so that the
same place gives the same groups however the rows are read in pieces; a group is given when all of its rows are there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from posttrain.errors import UserError
from posttrain.lakestream import Consumer, Stream
from posttrain.lakestream.schemas import EXPERIENCE
from posttrain.training.rl.samples import COLUMNS

Row = dict[str, Any]
GROUP = "trainer"  # whose watermark holds rows back from retention
_ROWS = 512  # read at a time
_POLL = 0.5  # seconds between two questions whether to go on waiting


class Place(NamedTuple):
    offset: int = 0
    used: int = 0


class Feed:
    """`live` feeds acknowledge; others (a replay) read beside them and move nobody's watermark."""

    def __init__(self, uri: str, place: Place, *, live: bool, max_latency: float = 0.05):
        self._stream = Stream.open(uri, schema=EXPERIENCE)
        self._consumer: Consumer = self._stream.consumer(
            group=GROUP if live else None, offset=place.offset, columns=COLUMNS, max_rows=_ROWS,
            max_latency=max_latency,
        )  # fmt: skip
        self._live, self._offset, self._used = live, place.offset, 0
        self._rows: deque[Row] = deque()
        self._skip = place.used

    @property
    def place(self) -> Place:
        """Behind the last group that was given."""
        return Place(self._offset, self._used)

    def group(self, *, timeout: float, waiting: Callable[[], None] = lambda: None) -> list[Row]:
        """The next group's rows. `waiting` is called now and then while there is none.

        Raises UserError after `timeout` seconds, and where the stream has ended or a group is not whole.
        """
        until = time.monotonic() + timeout
        while not self._whole():
            rows = self._consumer.poll(timeout=min(_POLL, max(0.0, until - time.monotonic())))
            self._rows.extend(rows.to_pylist())
            while self._skip and self._rows:
                self._rows.popleft()
                self._skip, self._used = self._skip - 1, self._used + 1
            if rows.num_rows:
                continue
            if self._consumer.ended or time.monotonic() >= until:
                why = "the stream is closed" if self._consumer.ended else f"no group came for {timeout:g} s"
                raise UserError(f"is out of samples: {why}", field="experience", value=self._stream.uri,
                                remedy="see whether the sampler runs, or raise wait_seconds")  # fmt: skip
            waiting()
        taken = [self._rows.popleft() for _ in range(self._size())]
        if len(names := {row["group"] for row in taken}) > 1:
            raise UserError(f"mixes the groups {', '.join(sorted(names)[:3])}", field="experience",
                            value=self._stream.uri)  # fmt: skip
        self._used += len(taken)
        if not self._rows:
            self._offset, self._used = self._consumer.offset, 0
        return taken

    def acknowledge(self) -> None:
        """Everything before the place is dealt with. Call it once a checkpoint that holds the place is on disk."""
        if self._live:
            self._stream.acknowledge(self._stream.consumer(group=GROUP, offset=self._offset, columns=COLUMNS))

    def _size(self) -> int:
        """Rows of the first group; those of a stream that does not tell are groups of one."""
        return self._rows[0]["group_rows"] or 1

    def _whole(self) -> bool:
        return bool(self._rows) and not self._skip and len(self._rows) >= self._size()
