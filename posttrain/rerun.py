"""Whether a step that ran again made the same: what is compared, and how.

Invariants: a run's name may differ and nothing else; a reference is the same when its digest is,
wherever it lies; a number is the same when it is equal bit for bit; what a step measured (seconds,
tokens per second) is shown and not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from posttrain.contract.record import Record, read
from posttrain.contract.ref import Ref
from posttrain.errors import UserError

_NAME_LIMIT = 63  # of a workflow, whose name is a label of its pods


@dataclass(frozen=True)
class Comparison:
    """One output, before and now."""

    name: str
    before: Any
    now: Any
    verdict: Literal["same", "differs", "measured"]


def find_record(workspace: Path, run: str, step: str) -> Record:
    """The record of `step` (its name with - or _) in `run`. UserError where there is none."""
    directory = workspace / "runs" / run
    if not directory.is_dir():
        raise UserError("no such run in the workspace", field="RUN", value=run, remedy="see `posttrain list`")
    found = read(directory / step.replace("-", "_"))
    if found is None:
        known = sorted(path.parent.name for path in directory.glob("*/record.json"))
        raise UserError("left no record", field="STEP", value=step, remedy=f"known: {', '.join(known) or 'none'}")
    return found


def next_name(workspace: Path, run: str) -> str:
    """The first `RUN-rerun-N` that nothing in the workspace is called by; of a long RUN its beginning."""
    suffixes = (f"-rerun-{number}" for number in count(1))
    names = (run[: _NAME_LIMIT - len(suffix)].rstrip("-.") + suffix for suffix in suffixes)
    places = [workspace / place for place in ("runs", "engine", "checkpoints")]
    return next(name for name in names if not any((place / name).exists() for place in places))


def compare(before: Record, now: Record) -> list[Comparison]:
    """Every output of `before` against the one of `now`, in the order of the record."""
    return [
        Comparison(name, value, now.outputs.get(name), _verdict(name, value, before, now))
        for name, value in before.outputs.items()
    ]


def surroundings(before: Record, now: Record) -> list[Comparison]:
    """What the step ran in: differences here explain differences there."""
    pairs = [
        ("environment", before.environment.get("digest"), now.environment.get("digest")),
        ("source", before.source.get("digest"), now.source.get("digest")),
        ("machine", before.host.get("machine"), now.host.get("machine")),
        ("cores", before.host.get("cores"), now.host.get("cores")),
    ]
    return [Comparison(name, b, n, "same" if b == n else "differs") for name, b, n in pairs]


def _verdict(name: str, value: Any, before: Record, now: Record) -> Literal["same", "differs", "measured"]:
    if name in before.measured:
        return "measured"
    return "same" if _essence(value, before.run) == _essence(now.outputs.get(name), now.run) else "differs"


def _essence(value: Any, run: str) -> Any:
    """What must agree: the digest of a reference, text without the run's name, anything else as it is."""
    if not isinstance(value, str):
        return value
    if "#sha256:" in value:
        return Ref.parse(value).digest
    return value.replace(run, "RUN")
