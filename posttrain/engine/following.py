"""The logs of a run, read while it goes on or afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from posttrain.engine.nodes import FULFILLED, POD, Node
from posttrain.engine.run.state import RunState
from posttrain.engine.store import RunStore
from posttrain.errors import UserError

_PAUSE_SECONDS = 0.3


def read_logs(store: RunStore, wanted: str | None, *, follow: bool) -> Iterator[tuple[str, str]]:
    """See `Engine.logs`."""
    seen: dict[Path, int] = {}
    while True:
        driven = follow and store.held()  # asked first: what is read of a run that nobody drives is its last word
        state = store.read()
        over = not follow or (state.status.get("phase") in FULFILLED and not driven)
        for node, log in _files(store, state, wanted):
            yield from ((node["displayName"], line) for line in _new_lines(log, seen, last=over))
        if over:
            return
        time.sleep(_PAUSE_SECONDS)


def _files(store: RunStore, state: RunState, wanted: str | None) -> Iterator[tuple[Node, Path]]:
    nodes = [one for one in state.nodes.values() if one["type"] == POD]
    if wanted is not None:
        nodes = [one for one in nodes if wanted in (one["name"], one["displayName"], one["id"])]
        if not nodes:
            raise UserError("there is no such node with a pod", field="node", value=wanted)
    for one in nodes:
        for log in sorted((store.pods / one["id"] / "logs").glob("*")):
            yield one, log


def _new_lines(log: Path, seen: dict[Path, int], *, last: bool) -> Iterator[str]:
    with log.open("rb") as file:
        file.seek(seen.get(log, 0))
        data = file.read()
    whole = len(data) if last else data.rfind(b"\n") + 1
    seen[log] = seen.get(log, 0) + whole
    yield from data[:whole].decode(errors="replace").splitlines()
