"""What maintenance may do, and when. Pure.

Invariant: a version is removed only when a fence younger than it is in the table, so that no commit which
began before the removal can land after it: Lance looks for conflicts among the transactions that are left.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from posttrain.lakestream.changes import lowest
from posttrain.lakestream.controls import Controls, Mark
from posttrain.lakestream.errors import StreamError
from posttrain.lakestream.offsets import Span

_MARKS = 200


@dataclass(frozen=True)
class Policy:
    """When and how a stream is maintained. Times in seconds, sizes in bytes.

    every_commits   versions between two runs; a run that comes earlier does nothing unless forced
    keep_versions   age up to which a version is kept for readers that are at it
    small_rows, small_bytes   a fragment that reaches either is not compacted any more
    retain          age beyond which rows that every group has acknowledged are removed; None keeps all
    archive         URI of a stream that takes the rows before they are removed; None drops them
    """

    every_commits: int = 100
    keep_versions: float = 600.0
    small_rows: int = 1_000_000
    small_bytes: int = 256 << 20
    retain: float | None = None
    archive: str | None = None

    def __post_init__(self) -> None:
        for field in ("every_commits", "small_rows", "small_bytes"):
            if getattr(self, field) < 1:
                raise StreamError("must be at least 1", field=field, value=getattr(self, field))
        for field in ("keep_versions", "retain"):
            if (getattr(self, field) or 0) < 0:
                raise StreamError("must not be negative", field=field, value=getattr(self, field))
        if self.archive is not None and self.retain is None:
            raise StreamError("has no effect without `retain`", field="archive", value=self.archive)


def is_due(controls: Controls, version: int, policy: Policy) -> bool:
    marks = controls.memory.marks
    return version - (marks[-1].version if marks else 0) >= policy.every_commits


def marks_to_keep(marks: Sequence[Mark], now: float, policy: Policy) -> tuple[Mark, ...]:
    """The marks that a later run can still ask for, thinned where there are many of one age."""
    oldest_asked = now - max(policy.keep_versions, policy.retain or 0.0)
    needed = [m for i, m in enumerate(marks) if i + 1 == len(marks) or marks[i + 1].at > oldest_asked]
    while len(needed) > _MARKS:
        half = needed[: len(needed) // 2]
        needed = half[::2] + needed[len(needed) // 2 :]
    return tuple(needed)


def removable_version(marks: Sequence[Mark], now: float, keep: float) -> int:
    """The newest version that was no longer the newest `keep` seconds ago; 0 for none."""
    return max((mark.version for mark in marks if mark.at <= now - keep), default=0)


def to_compact(
    spans: Sequence[Span], policy: Policy, indexed: Mapping[int, Hashable] = MappingProxyType({})
) -> list[tuple[Span, ...]]:
    """Groups of small fragments to make one of each: neighbours in the order of row ids, up to the policy's size.

    Merged in that order, row ids stay runs that a version's manifest holds in few bytes. `indexed` says for a
    fragment which indexes cover it; a group is of one kind, because an index covers a merged fragment or does not.
    """
    groups: list[list[Span]] = [[]]
    rows = size = 0
    kind: Hashable = None
    for span in sorted(spans, key=lambda span: span.first):
        small = span.rows < policy.small_rows and span.bytes < policy.small_bytes
        if not small or indexed.get(span.fragment) != kind or rows >= policy.small_rows or size >= policy.small_bytes:
            groups.append([])
            rows = size = 0
        kind = indexed.get(span.fragment)
        if small:
            groups[-1].append(span)
            rows, size = rows + span.rows, size + span.bytes
    return [tuple(group) for group in groups if len(group) > 1]


@dataclass(frozen=True)
class Removal:
    """Data `fragments` of `rows` rows, which are all the rows with ids in [removed before, below)."""

    fragments: tuple[int, ...]
    below: int
    rows: int


def removal(controls: Controls, spans: Sequence[Span], now: float, policy: Policy) -> Removal | None:
    """The fragments whose rows are all acknowledged by every group and old enough; None where there are none."""
    groups = controls.stream.body.groups
    if policy.retain is None or not groups:
        return None
    old = max((mark.end for mark in controls.memory.marks if mark.at <= now - policy.retain), default=0)
    bound = min(old, *(lowest(controls, name)[0] for name in groups))
    below = min((s.first for s in spans if s.last >= bound), default=bound)
    below = min(below, bound)
    gone = [s for s in spans if s.last < below]
    return Removal(tuple(s.fragment for s in gone), below, sum(s.rows for s in gone)) if gone else None
