"""Which transfers meet a demand.

Tensors of one shape, dtype, layout and demand (the experts of all layers, say) are worked out once, and their rows are
made together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posttrain.etha import formats
from posttrain.etha.balance import Balance
from posttrain.etha.demand import Demand, by_tensor, holders
from posttrain.etha.geometry import Atom, atoms
from posttrain.etha.layout import SourceLayout
from posttrain.etha.table import Rows, Shape, Table, packed
from posttrain.etha.topology import Topology


class _Class(NamedTuple):
    """Tensors of one shape, dtype, layout and demand; `wants[i]` are the numbers of the wants of tensor `names[i]`."""

    names: list[int]
    wants: list[list[int]]


def table_of(source: SourceLayout, demand: Demand, topology: Topology, limit: int) -> Table:
    """The table of the transfers by which `demand` is met, in buckets of at most `limit` bytes."""
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
    worked = [
        (one, atom)
        for one in classes.values()
        for atom in atoms(
            source.specs[names[one.names[0]]], held.cells(one.names[0]), [demand.wants[n] for n in one.wants[0]], limit
        )
    ]
    # Those without a choice first, then large before small: what is dealt last makes up for what came before.
    worked.sort(key=lambda pair: (len(pair[1].holders) > 1, -pair[1].nbytes))
    groups = {members: number for number, members in enumerate(demand.groups)}
    rows = _dealt(worked, demand, Balance(topology), groups)
    shapes = []
    for one, atom in worked:
        format, dtype = demand.wants[one.wants[0][atom.slot]].format, source.specs[names[one.names[0]]].dtype
        form = formats.parse(format)
        shapes.append(Shape(atom.box, dtype != format, form.itemsize if form.block is None else 0))
    return packed(names, tuple(shapes), tuple(groups), rows, limit)


def _dealt(
    worked: Sequence[tuple[_Class, Atom]], demand: Demand, balance: Balance, groups: dict[tuple[int, ...], int]
) -> Rows:
    """A row for each tensor of each class and each source that sends it; adds to `groups` those that are new."""
    columns: list[tuple[np.ndarray, ...]] = []
    for shape, (one, atom) in enumerate(worked):
        count = len(one.names)
        ranks, pieces = (np.array([holder[i] for holder in atom.holders], dtype=np.int32) for i in (0, 1))
        names, wants = (
            np.array(numbers, dtype=np.int32) for numbers in (one.names, [its[atom.slot] for its in one.wants])
        )
        destinations = demand.groups[demand.group[one.wants[0][atom.slot]]]
        for members, which in balance.deal(atom.holders, destinations, atom.nbytes, count):
            group = groups.setdefault(members, len(groups))
            columns.append((
                names, np.full(count, shape, np.int32), ranks[which], pieces[which], np.full(count, group, np.int32),
                wants, np.full(count, atom.nbytes),
            ))  # fmt: skip
    return Rows(*map(np.concatenate, zip(*columns, strict=True))) if columns else Rows(*[np.zeros(0, np.int32)] * 7)
