"""Mutexes and semaphores, shared by all runs of a workspace.

A lock is a small file that says who holds it and who waits, in order; it is replaced under flock. Who
holds a lock keeps it when its engine is killed, since the run can be resumed; a run that has ended,
or whose directory is gone, holds nothing.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posttrain.contract.files import write_atomic
from posttrain.errors import UserError

JSON = dict[str, Any]


class SyncError(Exception):
    """A lock that cannot be set up; the message is the controller's."""


@dataclass(frozen=True)
class Waiting:
    """The lock that is not to be had yet, and what a person should read."""

    lock: str
    message: str


class Locks:
    """The locks of one run. `limit_of(name, key)` reads a semaphore's limit from a config map or raises LookupError."""

    def __init__(self, workspace: Path, run: str, namespace: str, limit_of: Callable[[str, str], str]):
        self.directory, self.run, self.namespace, self.limit_of = (
            workspace / "engine" / ".locks",
            run,
            namespace,
            limit_of,
        )
        self.runs = workspace / "engine"
        self.held: dict[str, list[str]] = {}

    def acquire(self, holder: str, wanted: JSON) -> Waiting | None:
        """Take every lock that `synchronization` names, or none of them. Raises SyncError."""
        locks = self._locks(wanted)
        for name, limit in locks:
            with self._open(name) as state:
                self._queue(state, holder)
                if not self._may(state, holder, limit):
                    taken = len(state["holders"])
                    return Waiting(name, f"Waiting for {name} lock. Lock status: {max(limit - taken, 0)}/{limit}")
        for name, _ in locks:
            with self._open(name) as state:
                state["waiting"] = [one for one in state["waiting"] if one["node"] != holder]
                if all(one["node"] != holder for one in state["holders"]):
                    state["holders"].append({"run": self.run, "node": holder})
        self.held[holder] = [name for name, _ in locks]
        return None

    def release(self, holder: str) -> None:
        """Give back all that `holder` has, or stand in line for."""
        for name in self.held.pop(holder, None) or []:
            self._drop(name, lambda one: one["node"] == holder)

    def release_all(self) -> None:
        """The run has ended."""
        if self.directory.exists():
            for path in self.directory.glob("*.json"):
                self._drop(path.stem, lambda one: one["run"] == self.run, quoted=True)
        self.held.clear()

    def _locks(self, wanted: JSON) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for mutex in wanted.get("mutexes") or []:
            found.append((f"{mutex.get('namespace') or self.namespace}/Mutex/{mutex.get('name', '')}", 1))
        for semaphore in wanted.get("semaphores") or []:
            reference = semaphore.get("configMapKeyRef") or {}
            name, key = reference.get("name", ""), reference.get("key", "")
            lock = f"{semaphore.get('namespace') or self.namespace}/ConfigMap/{name}/{key}"
            try:
                found.append((lock, int(self.limit_of(name, key))))
            except (LookupError, ValueError):
                raise SyncError(f"failed to initialize semaphore {lock} with limit") from None
        return sorted(found)

    def _queue(self, state: JSON, holder: str) -> None:
        known = [one["node"] for one in [*state["holders"], *state["waiting"]]]
        if holder not in known:
            state["waiting"].append({"run": self.run, "node": holder, "since": time.time()})
            self.held.setdefault(holder, [])

    def _may(self, state: JSON, holder: str, limit: int) -> bool:
        if any(one["node"] == holder for one in state["holders"]):
            return True
        free = limit - len(state["holders"])
        return any(one["node"] == holder for one in state["waiting"][: max(free, 0)])

    def _drop(self, name: str, gone: Callable[[JSON], bool], *, quoted: bool = False) -> None:
        with self._open(name, quoted=quoted) as state:
            for part in ("holders", "waiting"):
                state[part] = [one for one in state[part] if not gone(one)]

    @contextmanager
    def _open(self, name: str, *, quoted: bool = False) -> Iterator[JSON]:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{name if quoted else quote(name, safe='')}.json"
        with open(f"{path}.flock", "a", encoding="utf-8") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            text = path.read_bytes() if path.exists() else b'{"holders": [], "waiting": []}'
            try:
                state = json.loads(text)
                for part in ("holders", "waiting"):
                    state[part] = [one for one in state[part] if (self.runs / one["run"] / "workflow.json").exists()]
            except (ValueError, KeyError, TypeError):
                remedy = "delete it once no run that is under way holds the lock"
                raise UserError("is damaged", field=str(path), remedy=remedy) from None
            yield state
            written = json.dumps(state).encode()
            if written != text:
                write_atomic(path, written)
