"""A run on disk: the Workflow object, a journal of what changed since, a lock, and orders from other processes.

    <run>/workflow.json   the Workflow object as it stood at journal entry metadata.resourceVersion
    <run>/events.jsonl    one line an entry: {seq, ops, events}; what follows the snapshot is replayed
    <run>/manifest.yaml   the manifest as it was submitted, with the objects it brought
    <run>/lock            held (flock) by the engine that drives the run
    <run>/orders/         operations asked for by other processes, see operations.py
    <run>/pods/           the pods' directories

Invariants: an entry is in the journal before anything is done because of it; a line that was cut
short by a crash is as if it had never been written; the snapshot is replaced atomically.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from posttrain.contract import locks
from posttrain.contract.files import write_atomic
from posttrain.engine.manifest.yaml import read_documents
from posttrain.engine.run.state import RunState, replay
from posttrain.errors import UserError

JSON = dict[str, Any]
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)
_SYNC_SECONDS = 0.5
_SNAPSHOT_SECONDS = 5.0


def damaged(path: Path, place: str = "") -> UserError:
    """What to say of a file of the store that is not as it was written."""
    where = f"{path}:{place}" if place else str(path)
    return UserError("is damaged", field=where, remedy="put back a copy of it, or submit the workflow again")


class RunStore:
    """The directory of one run."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._journal: Any = None
        self._lock: int | None = None
        self._sequence = 0
        self._synced = self._snapshot = 0.0
        self._snapshot_cost = 0.0

    @property
    def pods(self) -> Path:
        return self.directory / "pods"

    @property
    def orders(self) -> Path:
        return self.directory / "orders"

    def exists(self) -> bool:
        return (self.directory / "workflow.json").exists()

    def create(self, workflow: JSON, manifest: str) -> None:
        """Make the run's directory; raises UserError where there is one, or where it cannot be written."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir()
            for part in (self.pods, self.orders):
                part.mkdir()
            write_atomic(self.directory / "manifest.yaml", manifest)
            workflow["metadata"]["resourceVersion"] = "0"
            write_atomic(self.directory / "workflow.json", json.dumps(workflow, ensure_ascii=False))
        except FileExistsError:
            raise UserError("there is a run of this name", field="name", value=self.directory.name) from None
        except OSError as error:
            raise UserError(f"cannot make the run: {error.strerror}", field=str(self.directory)) from None

    def acquire(self) -> None:
        """Take the run's lock. Raises UserError that says who holds it."""
        path = self.directory / "lock"
        handle = locks.take(path)
        if handle is None:
            raise UserError(
                f"run {self.directory.name} is driven by another engine, process {locks.signed(path)}",
                remedy="wait for it, or stop that process; its pods go on and can be taken up",
            )
        locks.sign(handle)
        self._lock = handle

    def held(self) -> bool:
        """Whether some engine drives the run."""
        return locks.held(self.directory / "lock")

    def release(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> RunState:
        """The run as it stands. Raises UserError where a file is damaged."""
        path = self.directory / "workflow.json"
        try:
            workflow = json.loads(path.read_text(encoding="utf-8"))
            times = workflow.pop("times", {})
            started, finished = times.get("started", {}), times.get("finished", {})
            sequence = int(workflow["metadata"]["resourceVersion"])
            RunState(workflow)
        except FileNotFoundError:
            raise UserError("there is no such run", field="run", value=self.directory.name) from None
        except _DAMAGE:
            raise damaged(path) from None
        last = 0
        for entry in self.entries():
            last = entry["seq"]
            try:
                if last > sequence:
                    replay(workflow, entry["ops"], started, finished)
            except _DAMAGE:
                raise damaged(self.directory / "events.jsonl", f"entry {last}") from None
        if last < sequence:  # the snapshot was made of more than is left
            raise damaged(self.directory / "events.jsonl", "its end")
        self._sequence = last
        state = RunState(workflow)
        state.started, state.finished = started, finished
        return state

    def manifest(self) -> list[JSON]:
        """The documents of the manifest that the run was made from. Raises UserError where it is damaged."""
        path = self.directory / "manifest.yaml"
        try:
            documents = read_documents(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            raise damaged(path) from None
        if not documents or not all(isinstance(one, dict) for one in documents):
            raise damaged(path)
        return documents

    def entries(self, after: int = 0) -> Iterator[JSON]:
        """The journal's entries behind number `after`. Raises UserError where a line in its midst is damaged."""
        path = self.directory / "events.jsonl"
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return  # being written, or cut short by a crash
                try:
                    entry = json.loads(line)
                    if entry["seq"] > after:
                        yield entry
                except _DAMAGE:
                    raise damaged(path, str(number)) from None

    def open_journal(self) -> None:
        """Ready the journal for writing; what a crash cut short is cut off. The lock must be held."""
        path = self.directory / "events.jsonl"
        self._journal = path.open("ab")
        size = path.stat().st_size
        if size:
            with path.open("rb+") as file:
                file.seek(max(size - (1 << 20), 0))
                tail = file.read()
                whole = tail.rfind(b"\n") + 1
                if whole != len(tail):
                    file.truncate(size - len(tail) + whole)

    def commit(self, state: RunState, *, final: bool = False) -> list[JSON]:
        """Write what has changed; returns the events among it. Raises UserError on a full disk."""
        operations, events = state.drain()
        if not operations and not events and not final:
            return []
        try:
            if operations or events:
                self._sequence += 1
                entry = {"seq": self._sequence, "ops": operations, "events": events}
                self._journal.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
                self._journal.flush()
            now = time.monotonic()
            if final or now - self._synced > _SYNC_SECONDS:
                os.fdatasync(self._journal.fileno())
                self._synced = now
            if final or now - self._snapshot > max(_SNAPSHOT_SECONDS, 20 * self._snapshot_cost):
                self.snapshot(state)
        except OSError as error:
            raise UserError(
                f"cannot store the run: {error.strerror}", field=str(self.directory),
                remedy="make room, then resume the run: nothing that was stored is lost",
            ) from None  # fmt: skip
        return events

    def snapshot(self, state: RunState) -> None:
        """Replace workflow.json by the state as of the last entry."""
        began = time.monotonic()
        state.workflow["metadata"]["resourceVersion"] = str(self._sequence)
        whole = {**state.workflow, "times": {"started": state.started, "finished": state.finished}}
        write_atomic(self.directory / "workflow.json", json.dumps(whole, ensure_ascii=False))
        self._snapshot = time.monotonic()
        self._snapshot_cost = self._snapshot - began
