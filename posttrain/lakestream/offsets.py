"""Which rows a consumer may read, and in which order. Pure, no Lance.

An offset is a row id: every row of the consumer's part with a smaller id is dealt with. Row ids are unique,
grow in commit order and survive compaction, but have gaps. A *span* is one data fragment seen as its row
ids; compaction may leave spans that overlap, or whose ids are not in order, so nothing here relies on either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.lakestream.controls import Layer

Ids = np.ndarray  # of uint64


@dataclass(frozen=True)
class Span:
    """A data fragment: its id, smallest and largest row id, number of rows, bytes on disk."""

    fragment: int
    first: int
    last: int
    rows: int
    bytes: int

    @property
    def is_dense(self) -> bool:
        return self.last - self.first + 1 == self.rows


@dataclass(frozen=True)
class Part:
    """The rows with id % count == index that no older generation of the group has done."""

    index: int = 0
    count: int = 1
    layers: tuple[Layer, ...] = ()

    def mask(self, ids: Ids) -> np.ndarray:
        """For each id whether it belongs to this part."""
        wanted = np.ones(len(ids), bool) if self.count == 1 else ids % np.uint64(self.count) == self.index
        for layer in self.layers:
            done = np.asarray(layer.offsets, np.uint64)[ids % np.uint64(layer.count)]
            wanted &= ids >= done
        return wanted

    def predicate(self, begin: int, end: int) -> str:
        """Lance's filter for the ids in [begin, end) of this part, layers left aside."""
        span = f"_rowid >= {begin} AND _rowid < {end}"
        return span if self.count == 1 else f"{span} AND _rowid % {self.count} = {self.index}"


@dataclass(frozen=True)
class Chunk:
    """What to read next: the rows with ids in [begin, end), all of which lie in `fragments`."""

    fragments: tuple[int, ...]
    begin: int
    end: int


IdsOf = Callable[[Span], Ids]  # the span's row ids, ascending


def next_chunk(spans: Iterable[Span], offset: int, limit: int, part: Part, ids_of: IdsOf) -> Chunk | None:
    """The next rows at or after `offset`, at most `limit` of `part`; None where there are no rows at all."""
    pending = sorted((s for s in spans if s.last >= offset), key=lambda s: s.first)
    taken: list[Span] = []
    wanted = np.empty(0, np.uint64)
    for span in pending:
        if len(wanted) >= limit and span.first > wanted[limit - 1]:
            break  # every smaller id is in what has been taken
        wanted = np.sort(np.concatenate([wanted, _first(ids_of(span), offset, limit, part)]))
        taken.append(span)
    if not taken:
        return None
    if len(wanted) >= limit:
        end = int(wanted[limit - 1]) + 1
    else:
        end = max(span.last for span in taken) + 1
    return Chunk(tuple(span.fragment for span in taken if span.first < end), offset, end)


def _first(ids: Ids, offset: int, limit: int, part: Part) -> Ids:
    """The first `limit` ids of `part` at or after `offset`; `ids` ascend."""
    ids = ids[np.searchsorted(ids, np.uint64(offset)) :]
    if part.count == 1 and not part.layers:
        return ids[:limit]
    return ids[part.mask(ids)][:limit]


def end_of(spans: Sequence[Span]) -> int:
    """One past the largest row id."""
    return max((span.last for span in spans), default=-1) + 1


def rows_from(spans: Iterable[Span], offset: int, part: Part, ids_of: IdsOf) -> int:
    """How many rows of `part` have ids at or after `offset`."""
    total = 0
    for span in spans:
        if span.last < offset:
            continue
        if span.is_dense and not part.layers:
            total += _congruent(max(span.first, offset), span.last + 1, part)
        else:
            ids = ids_of(span)
            total += int(np.count_nonzero(part.mask(ids[np.searchsorted(ids, np.uint64(offset)) :])))
    return total


def _congruent(begin: int, end: int, part: Part) -> int:
    """How many ids in [begin, end) leave the remainder `index` when divided by `count`."""

    def below(bound: int) -> int:
        return max(0, (bound - part.index + part.count - 1) // part.count)

    return below(end) - below(begin)
