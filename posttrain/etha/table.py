"""The table of a plan: a row for each transfer, packed into buckets, and these in order.

Invariants: the rows of a bucket follow each other, have one source and one group of destinations, and lie in it in that
order without gaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posttrain.etha.slices import Box


class Shape(NamedTuple):
    """What transfers of equal tensors have in common.

    `converts` says whether the source has it in another format than it travels in; `alignment` is the size of the
    elements, 0 with scales, which lie anywhere.
    """

    box: Box
    converts: bool
    alignment: int


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A row for each transfer; `shape` indexes `Table.shapes`, `group` `Table.groups`."""

    name: np.ndarray
    shape: np.ndarray
    source: np.ndarray
    piece: np.ndarray
    group: np.ndarray
    want: np.ndarray
    nbytes: np.ndarray

    def take(self, order: np.ndarray) -> Rows:
        return Rows(*(getattr(self, column)[order] for column in self.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What a plan consists of. Bucket b has the rows `first[b]` to `first[b + 1]`, and goes to `groups[group[b]]`.

    The source begins with that of number `begins_at[b]` among these.
    """

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    groups: tuple[tuple[int, ...], ...]
    rows: Rows
    first: np.ndarray
    source: np.ndarray
    group: np.ndarray
    begins_at: np.ndarray
    nbytes: np.ndarray


def packed(
    names: tuple[str, ...],
    shapes: tuple[Shape, ...],
    groups: tuple[tuple[int, ...], ...],
    rows: Rows,
    limit: int,
) -> Table:
    """Transfers of one source to one group, packed into buckets, and these put in order.

    Elements of many bytes come first in a bucket and scales last, so that all lie aligned.
    """
    alignment = np.array([shape.alignment for shape in shapes], dtype=np.int64)[rows.shape]
    pairs = rows.source.astype(np.int64) * len(groups) + rows.group
    rows = rows.take(np.argsort(pairs * 16 - alignment, kind="stable"))
    ends = np.cumsum(rows.nbytes)
    starts = np.flatnonzero(np.diff(rows.source, prepend=-1) | np.diff(rows.group, prepend=-1))
    first, counts = [], []
    for low, high in itertools.pairwise([*starts.tolist(), len(ends)]):
        cuts = [low, *_cuts(ends, low, high, limit)]
        first += cuts[:-1]
        counts.append(len(cuts) - 1)
    begin, source, group = np.array(first, dtype=np.int64), rows.source[starts], rows.group[starts]
    members = np.array([len(one) for one in groups], dtype=np.int64)[group]
    order, begins_at = _in_order(source, group, members, np.array(counts, dtype=np.int64))
    pair = np.repeat(np.arange(len(starts)), counts)[order]
    size = np.diff(begin, append=len(ends))[order]
    after = np.cumsum(size)
    rows = rows.take(np.repeat(begin[order] - (after - size), size) + np.arange(len(ends)))
    first_rows, total = (np.concatenate([[0], column]) for column in (after, np.cumsum(rows.nbytes)))
    return Table(
        names, shapes, groups, rows, first_rows, source[pair], group[pair], begins_at[pair],
        np.diff(total[first_rows]),
    )  # fmt: skip


def _in_order(
    source: np.ndarray, group: np.ndarray, members: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The order of buckets, of which source i and group i (of `members[i]` destinations) have `counts[i]`.

    And with which of the group's destinations that pair begins. Each source spreads the buckets of each group over its
    whole time, so that no destination waits until another is served. As many sources as a group has destinations serve
    it at a time, each another one; where there are more, these do it a shift later, and other groups before.
    """
    among = _number_within(group, source)  # of the group's sources, the how manieth this one is
    sources = np.bincount(group)[group]
    begins_at = np.where(sources <= members, among * members // sources, among % members)
    shifts = -(-sources // members)
    shift = (among // members + _number_within(source.astype(np.int64) * (len(source) + 1) + shifts, group)) % shifts
    pair = np.repeat(np.arange(len(source)), counts)
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    time = (nth + ((shift + 0.5) / shifts)[pair]) / counts[pair]
    return np.lexsort((source[pair], _number_within(source[pair], time))), begins_at


def _number_within(key: np.ndarray, by: np.ndarray) -> np.ndarray:
    """For each element its place among those of the same key, by another column."""
    order = np.lexsort((by, key))
    found = np.empty(len(key), dtype=np.int64)
    found[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    return found


def _cuts(ends: np.ndarray, low: int, high: int, limit: int) -> Iterator[int]:
    """Where the rows from `low` to `high` are cut so that no part of several has more bytes than `limit`."""
    while low < high:
        before = int(ends[low - 1]) if low else 0
        low = max(low + 1, min(high, int(np.searchsorted(ends, before + limit, side="right"))))
        yield low
