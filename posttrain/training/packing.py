"""Documents to updates, updates to rows. Pure: lengths in, plans out.

Invariants: the same lengths, seed and epoch give the same plan; every document of an epoch is in exactly
one update and one row; no row holds more tokens than its capacity; an update's documents are consecutive in
the epoch's order, so that a place in the data is (epoch, number of documents taken).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Row = list[int]  # indices of documents, in the order in which they stand in the row


class Update(NamedTuple):
    """The documents of one optimiser step: `order[start:stop]` of `epoch`."""

    epoch: int
    start: int
    stop: int


def epoch_order(count: int, *, seed: int, epoch: int, shuffle: bool) -> list[int]:
    """The order in which an epoch takes the documents."""
    if not shuffle:
        return list(range(count))
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, epoch])).permutation(count).tolist()


def plan_epoch(lengths: Sequence[int], order: Sequence[int], *, epoch: int, batch_tokens: int) -> list[Update]:
    """Cut the epoch into updates of at most `batch_tokens` tokens; a longer document is an update by itself."""
    updates, start, held = [], 0, 0
    for place, document in enumerate(order):
        if place > start and held + lengths[document] > batch_tokens:
            updates.append(Update(epoch, start, place))
            start, held = place, 0
        held += lengths[document]
    if start < len(order):
        updates.append(Update(epoch, start, len(order)))
    return updates


def pack(lengths: Sequence[int], documents: Sequence[int], *, capacity: int) -> list[Row]:
    """First-fit-decreasing (Johnson 1973; at most 11/9 of the fewest rows, plus one).

    Of documents of equal length the one that comes first in `documents` is placed first, and a row keeps the order
    in which its documents were placed. Raises ValueError for a document longer than `capacity`.
    """
    rows: list[Row] = []
    tree = _FirstFit(len(documents), capacity)
    for document in sorted(documents, key=lambda d: -lengths[d]):
        if lengths[document] > capacity:
            raise ValueError(f"document {document} of {lengths[document]} tokens fits no row of {capacity}")
        row = tree.place(lengths[document])
        if row == len(rows):
            rows.append([])
        rows[row].append(document)
    return rows


class _FirstFit:
    """The free room of each row in a tree of maxima: the first row with room in O(log n)."""

    def __init__(self, rows: int, capacity: int):
        self._leaves = 1 << max(rows - 1, 0).bit_length()
        self._room = [capacity] * (2 * self._leaves)

    def place(self, length: int) -> int:
        node = 1
        while node < self._leaves:
            node = 2 * node if self._room[2 * node] >= length else 2 * node + 1
        leaf = node - self._leaves
        self._room[node] -= length
        while node > 1:
            node //= 2
            self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])
        return leaf


def deal(rows: Sequence[Row], *, rank: int, world: int) -> list[Row]:
    """The rows of one rank. Every rank has as many, an empty one where they do not come out even."""
    share = -(-len(rows) // world)
    mine = list(rows[rank::world])
    return mine + [[]] * (share - len(mine))


def attention_groups(lengths: Sequence[int], *, waste: float = 1.25) -> list[list[int]]:
    """Documents grouped so that padding each to its group's longest costs at most `waste` of their area.

    Attention costs the square of a length: what is padded is area, and a group is one call.
    """
    groups: list[list[int]] = []
    area = 0
    for document in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        if groups:
            longest = lengths[groups[-1][0]]
            if longest**2 * (len(groups[-1]) + 1) <= waste * (area + lengths[document] ** 2):
                groups[-1].append(document)
                area += lengths[document] ** 2
                continue
        groups.append([document])
        area = lengths[document] ** 2
    return groups
