"""Scored verdicts on their way into the Lakestream stream `verdicts`: each exactly once, a moment after its answer.

The index is the outbox. A replica appends its trajectories in the order of `seq` with the last one as the cursor, so
that after a crash the stream itself says where to go on.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

from sqlalchemy import Engine, Row

from posttrain.lakestream import VERDICTS, Policy, Stream, StreamError
from posttrain.reward import store

log = logging.getLogger(__name__)
_ROWS = 2500  # in one commit
_SECONDS = 1.0  # between two commits


class Outbox:
    """A thread that appends. Raises StreamError at once where the stream cannot be opened."""

    def __init__(self, engine: Engine, uri: str, replica: str):
        self._engine, self._replica = engine, replica
        self._producer = Stream.create(uri, VERDICTS).producer(replica, upkeep=Policy())
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verdicts-outbox", daemon=True)
        self._thread.start()

    @property
    def left(self) -> int:
        return store.left(self._engine, self._replica, self._cursor)

    def close(self) -> None:
        """Append what is left, and end."""
        self._ending.set()
        self._thread.join()
        self._append()

    @property
    def _cursor(self) -> int:
        cursor = self._producer.cursor
        return cursor if isinstance(cursor, int) else 0

    def _run(self) -> None:
        while not self._ending.wait(_SECONDS):
            try:
                self._append()
            except StreamError as problem:  # nothing is lost: the index holds it
                log.error("verdicts could not be appended: %s", problem)
                if self._ending.wait(10 * _SECONDS):
                    return

    def _append(self) -> None:
        while rows := store.unstreamed(self._engine, self._replica, self._cursor, _ROWS):
            self._producer.append([_streamed(row) for row in rows], cursor=rows[-1].seq)


def _streamed(row: Row[Any]) -> dict[str, Any]:
    details = {
        "key": row.key, "task": row.task, "version": row.version, "status": row.status,
        "components": json.loads(row.components), "evidence": json.loads(row.evidence),
    }  # fmt: skip
    return {
        "trajectory": row.trajectory, "verifier": row.verifier, "reward": row.reward,
        "correct": row.correct, "well_formed": row.well_formed,
        "details": json.dumps(details, ensure_ascii=False), "seconds": row.seconds,
    }  # fmt: skip
