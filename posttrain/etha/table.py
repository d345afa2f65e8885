"""The table of a plan: a row for each transfer, packed into buckets.

Tensors of one shape, dtype, layout and demand (the experts of all layers, say) are worked out once, and their rows are
made together. Invariants: the rows of a bucket follow each other, have one source and one group of destinations, and
lie in it in that order without gaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posttrain.etha import formats
from posttrain.etha.balance import Balance
from posttrain.etha.demand import Demand, by_tensor, holders
from posttrain.etha.geometry import Atom, atoms
from posttrain.etha.layout import SourceLayout
from posttrain.etha.slices import Box
from posttrain.etha.topology import Topology


@dataclass(frozen=True, slots=True)
class Rows:
    """A row for each transfer, in the order of buckets and of offsets. `shape` indexes `boxes` and `Table.converts`."""

    name: np.ndarray
    shape: np.ndarray
    source: np.ndarray
    piece: np.ndarray
    group: np.ndarray
    want: np.ndarray
    nbytes: np.ndarray

    def take(self, order: np.ndarray) -> Rows:
        return Rows(*(getattr(self, column)[order] for column in self.__slots__))


@dataclass(frozen=True, slots=True)
class Table:
    """What a plan consists of. Bucket b has the rows `first[b]` to `first[b + 1]`, and goes to `groups[group[b]]`.

    The source begins with that of number `begins_at[b]` among them.
    `converts[s]` says whether the source has rows of that shape in another format than they travel in.
    """

    names: tuple[str, ...]
    boxes: tuple[Box, ...]
    converts: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    rows: Rows
    first: np.ndarray
    source: np.ndarray
    group: np.ndarray
    begins_at: np.ndarray
    nbytes: np.ndarray


class _Class(NamedTuple):
    """Tensors of one shape, dtype, layout and demand; `wants[i]` are the numbers of the wants of tensor `names[i]`."""

    names: list[int]
    wants: list[list[int]]


def table_of(source: SourceLayout, demand: Demand, topology: Topology, limit: int) -> Table:
    wanted = by_tensor(source, demand)
    names = tuple(wanted)
    held = holders(source.ranks, names)
    classes: dict[tuple, _Class] = {}
    for number, (name, numbers) in enumerate(wanted.items()):
        spec = source.specs[name]
        asked = tuple((demand.wants[n].box, demand.wants[n].format, demand.group[n]) for n in numbers)
        one = classes.setdefault((spec.shape, spec.dtype, held.key(number), asked), _Class([], []))
        one.names.append(number)
        one.wants.append(numbers)
    boxes: list[Box] = []
    converts: list[bool] = []
    alignment: list[int] = []
    groups = {members: number for number, members in enumerate(demand.groups)}
    worked: list[tuple[_Class, Atom]] = []
    for one in classes.values():
        spec = source.specs[names[one.names[0]]]
        listed = [demand.wants[n] for n in one.wants[0]]
        worked += [(one, atom) for atom in atoms(spec, held.cells(one.names[0]), listed, limit)]
    # Those without a choice first, then large before small: what is dealt last makes up for what came before.
    worked.sort(key=lambda pair: (len(pair[1].holders) > 1, -pair[1].nbytes))
    balance = Balance(topology)
    columns: list[tuple[np.ndarray, ...]] = []
    for one, atom in worked:
        count, shape = len(one.names), len(boxes)
        want = demand.wants[one.wants[0][atom.slot]]
        boxes.append(atom.box)
        converts.append(source.specs[names[one.names[0]]].dtype != want.format)
        form = formats.parse(want.format)
        alignment.append(form.itemsize if form.block is None else 0)
        ranks, pieces = (np.array([holder[i] for holder in atom.holders], dtype=np.int32) for i in (0, 1))
        of_names = np.array(one.names, dtype=np.int32)
        of_wants = np.array([its[atom.slot] for its in one.wants], dtype=np.int32)
        destinations = demand.groups[demand.group[one.wants[0][atom.slot]]]
        for members, which in balance.deal(atom.holders, destinations, atom.nbytes, count):
            group = groups.setdefault(members, len(groups))
            columns.append((
                of_names, np.full(count, shape, np.int32), ranks[which], pieces[which], np.full(count, group, np.int32),
                of_wants, np.full(count, atom.nbytes),
            ))  # fmt: skip
    rows = Rows(*map(np.concatenate, zip(*columns, strict=True))) if columns else Rows(*[np.zeros(0, np.int32)] * 7)
    return _packed(names, tuple(boxes), converts, alignment, list(groups), rows, limit)


def _packed(
    names: tuple[str, ...],
    boxes: tuple[Box, ...],
    converts: Sequence[bool],
    alignment: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    rows: Rows,
    limit: int,
) -> Table:
    """Transfers of one source to one group, packed into buckets, and these put in order.

    Elements of many bytes come first in a bucket and scales last, so that all lie aligned.
    """
    rows = rows.take(np.lexsort((rows.shape, rows.name, -np.array(alignment)[rows.shape], rows.group, rows.source)))
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
        names, boxes, np.array(converts, dtype=bool), tuple(groups), rows, first_rows, source[pair], group[pair],
        begins_at[pair], np.diff(total[first_rows]),
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
