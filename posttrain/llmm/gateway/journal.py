"""What outlives the gateway's process: one file for each trajectory, one JSON line for each thing that happened.

    open/ID.jsonl              under way
    closed/000000000017-ID.jsonl   ended, and not known to be in the stream; the number is its cursor there
    settled/ID.jsonl           ended, and in the stream
    traces/ID.jsonl            its ledger, for `posttrain trace`

Invariants: a turn's line is written before its answer ends; a trajectory moves on by a rename, so that it is in one
place whatever dies when; a line that was cut off by a crash is the last one, and counts as not written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from posttrain.contract.files import sync_directory, write_atomic
from posttrain.llmm import ir, trace
from posttrain.llmm.ir.agentic import Status


class Opened(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="open", tag_field="kind"):
    id: str
    task: str
    group: str
    key: str  # digest of the key that names it
    started: float
    metadata: dict[str, str] = {}


class TurnTaken(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="turn", tag_field="kind"):
    """`new` are the ids that the prompt added to those of the turn's parent, `ids` what was sampled after them."""

    turn: ir.Turn
    new: ir.Tokens
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    policy: tuple[tuple[int, int, int], ...] = ()
    version: str = ""
    losses: tuple[trace.Lost, ...] = ()  # what the request said and the model was not told


class CallFailed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="failed", tag_field="kind"):
    """A call without a whole answer, with the whole of its request. Nothing of it is trained on."""

    call: ir.Call
    error: str
    vendor: str | None = None  # who was asked in the policy's place
    sampled: int = 0  # tokens that were sampled all the same


class CallPassed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="passed", tag_field="kind"):
    """A call that a vendor answered in the policy's place, with the whole of its request and answer."""

    call: ir.Call
    vendor: str
    conversions: tuple[trace.Converted, ...] = ()  # where the client speaks another dialect than the vendor


class Closed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="close", tag_field="kind"):
    status: Status
    at: float
    reward: float | None = None
    details: dict[str, object] | None = None


Entry = Opened | TurnTaken | CallFailed | CallPassed | Closed
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class Journal:
    def __init__(self, directory: Path):
        self._open, self._closed, self._settled = (directory / name for name in ("open", "closed", "settled"))
        self.traces = directory / "traces"
        for folder in (self._open, self._closed, self._settled, self.traces):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, trajectory: str, entry: Entry) -> None:
        """Add a line to an open trajectory. It is the system's by then: it outlives the process, not the machine."""
        with open(self._open / f"{trajectory}.jsonl", "ab", buffering=0) as out:
            out.write(_encode(entry) + b"\n")

    def close(self, trajectory: str, entry: Closed, number: int) -> Path:
        """End a trajectory: on the disk, under its number, when this returns."""
        self.write(trajectory, entry)
        path = self._open / f"{trajectory}.jsonl"
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        final = self._closed / f"{number:012d}-{trajectory}.jsonl"
        os.rename(path, final)
        sync_directory(self._closed)
        return final

    def settle(self, path: Path, ledger: Iterable[trace.Event]) -> None:
        """A closed trajectory is in the stream, and its ledger is kept."""
        trajectory = path.stem.split("-", 1)[1]
        write_atomic(self.traces / f"{trajectory}.jsonl", b"".join(_encode(event) + b"\n" for event in ledger))
        os.rename(path, self._settled / f"{trajectory}.jsonl")

    def open_ones(self) -> list[str]:
        """Those that an earlier process left open."""
        return sorted(path.stem for path in self._open.glob("*.jsonl"))

    def closed_ones(self) -> list[tuple[int, Path]]:
        """(number, file) in the order of numbers."""
        return [(int(path.name.split("-", 1)[0]), path) for path in sorted(self._closed.glob("*-*.jsonl"))]

    def find_closed(self, trajectory: str) -> Closed | None:
        """How an ended trajectory ended; None where none of that name has."""
        settled = self._settled / f"{trajectory}.jsonl"
        found = [settled] if settled.exists() else [*self._closed.glob(f"*-{trajectory}.jsonl")]
        return next((entry for path in found for entry in read(path) if isinstance(entry, Closed)), None)

    def mend(self, trajectory: str) -> None:
        """Take half a line, written as a process died, from the end."""
        path = self._open / f"{trajectory}.jsonl"
        whole = path.read_bytes()
        if whole and not whole.endswith(b"\n"):
            with open(path, "r+b") as file:
                file.truncate(whole.rfind(b"\n") + 1)


def read(path: Path) -> Iterator[Entry]:
    for line in path.read_bytes().splitlines():
        yield _decode(line)
