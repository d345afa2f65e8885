"""Wants and holdings of all ranks, gathered by what is equal: replicas want the same, layers are held alike."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.errors import UserError
from posttrain.etha.geometry import Cells, cells, check_want
from posttrain.etha.layout import Piece, RankLayout, SourceLayout
from posttrain.etha.slices import Want


@dataclass(frozen=True, slots=True)
class Demand:
    """The distinct wants, and for each the destinations that have it, as an index of `groups`."""

    wants: tuple[Want, ...]
    group: tuple[int, ...]
    groups: list[tuple[int, ...]]

    @classmethod
    def of(cls, wants: Sequence[Sequence[Want]]) -> Demand:
        """Replicas list the same wants: each list is looked at once."""
        same: dict[int, list[int]] = {}
        ranks: dict[tuple[Want, ...], list[int]] = {}
        for rank, listed in enumerate(wants):
            if id(listed) not in same:
                same[id(listed)] = ranks.setdefault(tuple(listed), [])
            same[id(listed)].append(rank)
        lists: dict[Want, list[int]] = {}
        for number, listed in enumerate(ranks):
            for want in dict.fromkeys(listed):
                lists.setdefault(want, []).append(number)
        members = list(ranks.values())
        numbers: dict[tuple[int, ...], int] = {}
        group = [numbers.setdefault(tuple(having), len(numbers)) for having in lists.values()]
        groups = [tuple(sorted(itertools.chain.from_iterable(members[one] for one in having))) for having in numbers]
        return cls(tuple(lists), tuple(group), groups)


def by_tensor(source: SourceLayout, demand: Demand) -> dict[str, list[int]]:
    """The numbers of the wants of each tensor, all of them checked."""
    found: dict[str, list[int]] = {}
    checked = set()
    for number, want in enumerate(demand.wants):
        name = source.aliases.get(want.name, want.name)
        spec = source.specs.get(name)
        if spec is None:
            known = [*source.specs, *source.aliases]
            near = difflib.get_close_matches(want.name, known, n=3) or known[:3]
            raise UserError(
                "is wanted, but no source has a tensor of that name", field=want.name,
                remedy=f"there is {', '.join(near)}" if near else None,
            )  # fmt: skip
        if (what := (spec.shape, spec.dtype, want.box, want.format)) not in checked:
            check_want(spec, want)
            checked.add(what)
        found.setdefault(name, []).append(number)
    return found


class Held:
    """Which ranks hold which pieces of each tensor; tensors that are held alike share a key and their cells."""

    def __init__(
        self, names: Sequence[str], rank: np.ndarray, name: np.ndarray, piece: np.ndarray, known: list
    ) -> None:
        order = np.lexsort((rank, name))
        self.names, self.rank, self.piece, self.known = names, rank[order], piece[order], known
        self.ends = np.searchsorted(name[order], np.arange(len(names) + 1)).tolist()
        self.made: dict[tuple[bytes, bytes], Cells] = {}

    def key(self, number: int) -> tuple[bytes, bytes]:
        part = slice(self.ends[number], self.ends[number + 1])
        return self.rank[part].tobytes(), self.piece[part].tobytes()

    def cells(self, number: int) -> Cells:
        key = self.key(number)
        if key not in self.made:
            part = slice(self.ends[number], self.ends[number + 1])
            if part.start == part.stop:
                raise UserError("is wanted, but no source holds any of it", field=self.names[number])
            pairs = zip(self.rank[part].tolist(), self.piece[part].tolist(), strict=True)
            self.made[key] = cells([(rank, self.known[piece]) for rank, piece in pairs])
        return self.made[key]


def holders(ranks: Sequence[RankLayout], names: Sequence[str]) -> Held:
    index = {name: number for number, name in enumerate(names)}
    by_id: dict[int, int] = {}  # most tensors of a described layout share their pieces
    by_value: dict[tuple[Piece, ...], int] = {}
    columns: list[tuple[np.ndarray, ...]] = []
    for rank, layout in enumerate(ranks):
        count = len(layout.tensors)
        for its in layout.tensors.values():
            if id(its) not in by_id:
                by_id[id(its)] = by_value.setdefault(its, len(by_value))
        number = np.fromiter(map(by_id.__getitem__, map(id, layout.tensors.values())), np.int32, count)
        held = np.fromiter(map(index.get, layout.tensors, itertools.repeat(-1)), np.int32, count)
        wanted = held >= 0
        columns.append((np.full(wanted.sum(), rank, np.int32), held[wanted], number[wanted]))
    of_rank, of_name, of_piece = map(np.concatenate, zip(*columns, strict=True))
    return Held(names, of_rank, of_name, of_piece, list(by_value))
