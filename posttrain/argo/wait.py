"""Waiting for a workflow.

Hera's own `wait` returns at once while a workflow is Pending, and a workflow that was just made has
no phase at all; here only a final phase ends the wait. A server that is away for a while is asked
again, since a run of hours outlives a restart of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from posttrain.argo.cluster import Unreachable
from posttrain.argo.status import FINAL

PATIENCE = 300.0


class Asked(Protocol):
    """Who knows how a workflow stands: a cluster, or the embedded engine."""

    def get(self, name: str, /) -> dict[str, Any]: ...


def wait(asked: Asked, name: str, *, every: float = 2.0, patience: float = PATIENCE) -> Iterator[dict[str, Any]]:
    """Yield the workflow's state each time it was asked for, the final one last.

    `every` is in seconds. One that does not answer for `patience` seconds ends the wait with
    `Unreachable`; a workflow that is not there (any more), at once with its UserError.
    """
    answered = time.monotonic()
    while True:
        try:
            found = asked.get(name)
        except Unreachable:
            if time.monotonic() - answered > patience:
                raise
        else:
            answered = time.monotonic()
            yield found
            if found.get("status", {}).get("phase") in FINAL:
                return
        time.sleep(every)
