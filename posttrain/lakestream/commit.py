"""The loop around a commit: decide, try, look at the table, decide again. Everything that commits uses it.

Invariant: what became of a try is told by the controls at the newest version, never by Lance's answer. A try
that was refused, got no answer, or landed on a version already cleaned up ends in reading the controls; a
further try stages its fragments anew, unless it is certain that none of the first try's are in any version.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from posttrain.lakestream import metrics
from posttrain.lakestream.changes import Change
from posttrain.lakestream.controls import Controls
from posttrain.lakestream.errors import StoreUnavailable, StreamNotFound
from posttrain.lakestream.events import emit
from posttrain.lakestream.storage import name_of
from posttrain.lakestream.table import Conflict, Table, Unanswered

T = TypeVar("T")
_NO_ROWS = pa.table({})
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 5.0  # seconds, while the store does not answer
_CONFLICT_WAIT = 0.01  # at most; a fence or a close conflicts with every append, so it must try again at once


class Patience:
    """A deadline, and waits between tries that differ from holder to holder and grow while the store is silent."""

    def __init__(self, timeout: float, uri: str):
        self.timeout, self.uri = timeout, uri
        self._ends = time.monotonic() + timeout
        self._wait = _FIRST_WAIT

    def pause(self, cause: BaseException) -> None:
        """Wait before the next try; StoreUnavailable once the deadline would be passed."""
        if isinstance(cause, Conflict):
            wait, self._wait = _CONFLICT_WAIT * random.random(), _FIRST_WAIT
        else:
            wait, self._wait = self._wait * (0.5 + random.random()), min(_LONGEST_WAIT, self._wait * 2)
        if time.monotonic() + wait > self._ends:
            raise StoreUnavailable(f"gave up after {self.timeout:g} s", uri=self.uri, cause=cause) from cause
        emit("retried", name_of(self.uri), cause=type(cause).__name__, wait=wait)
        metrics.RETRIES.labels(name_of(self.uri), type(cause).__name__.lower()).inc()
        time.sleep(wait)

    def until_answered(self, ask: Callable[[], T]) -> T:
        """What `ask` answers; asked again while the store does not answer."""
        while True:
            try:
                return ask()
            except (Conflict, Unanswered) as problem:
                self.pause(problem)


def read_controls(table: Table, patience: Patience, *, look: bool = True) -> Controls:
    """Move `table` to the newest version and read its controls, waiting for a store that does not answer.

    Unless told to `look`, the version at hand is read first; the newest where that is of no use any more.
    """

    def newest() -> Controls | None:
        nonlocal look
        if look:
            table.refresh()
        look = True
        return table.controls()

    controls = patience.until_answered(newest)
    if controls is None:
        raise StreamNotFound("was not created to the end", field="uri", value=table.uri, remedy="create it again")
    return controls


def commit(table: Table, decide: Callable[[Controls], Change | None], patience: Patience, *, look: bool = True) -> None:
    """Commit what `decide` answers for the newest controls, until it answers None: nothing is left to do.

    `decide` is asked again unless the change is seen to be the newest version, so it must answer None where
    it finds its change in the controls. Whatever it raises ends the loop. For changes without rows. `look`: see
    `read_controls`, at first.
    """
    while True:
        change = decide(read_controls(table, patience, look=look))
        look = True
        if change is None:
            return
        label = name_of(table.uri)
        try:
            emit("staging", label, what=change.what)
            staged = table.stage_for(change, _NO_ROWS)
            emit("staged", label, what=change.what)
            landed = table.commit(change, *staged)
            emit("committed", label, what=change.what, version=landed.version)
            if table.latest() == landed.version:
                return
        except Conflict as problem:
            metrics.CONFLICTS.labels(label).inc()
            patience.pause(problem)
        except Unanswered as problem:
            patience.pause(problem)
