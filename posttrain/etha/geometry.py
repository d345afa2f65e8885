"""Which parts of which pieces make up a want: intervals per dimension, for all tensors of one layout at once.

`Cells` are the boxes that ranks hold of a tensor, each with the ranks that hold it; they do not overlap. An `Atom` is
what one source sends of one cell to those who want it: the meeting of a cell and a want, cut where it is too large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posttrain.errors import UserError
from posttrain.etha import formats
from posttrain.etha.boxes import less
from posttrain.etha.layout import Piece, TensorSpec
from posttrain.etha.slices import Box, Want

AT_ONCE = 1 << 22  # pairs of boxes compared in one go


class Holder(NamedTuple):
    """`piece` is the index among the rank's pieces of the tensor."""

    rank: int
    piece: int
    box: Box


@dataclass(frozen=True, slots=True)
class Cells:
    """`start` and `stop` are (cells, dimensions)."""

    start: np.ndarray
    stop: np.ndarray
    holders: tuple[tuple[Holder, ...], ...]


class Atom(NamedTuple):
    """`slot` is the want's index among those of the tensor."""

    slot: int
    box: Box
    nbytes: int
    holders: tuple[Holder, ...]


def cells(held: Sequence[tuple[int, tuple[Piece, ...]]]) -> Cells:
    """The cells of what each (rank, pieces) holds of a tensor."""
    by_box: dict[Box, list[Holder]] = {}
    for rank, its in held:
        for number, piece in enumerate(its):
            by_box.setdefault(piece.box, []).append(Holder(rank, number, piece.box))
    found = _of_boxes(by_box)
    return found if _disjoint(found) else _of_boxes(_cut(by_box))


def atoms(spec: TensorSpec, of: Cells, wants: Sequence[Want], limit: int) -> list[Atom]:
    """What makes up the wants of one tensor; UserError naming tensor and box where no source has it as it is wanted."""
    found = []
    for slot, want in enumerate(wants):
        units = formats.units(want.format, spec.shape)
        start, stop = np.maximum(of.start, want.box.start), np.minimum(of.stop, want.box.stop)
        meets = np.flatnonzero((start < stop).all(axis=1))
        have = 0
        for cell in meets:
            box = Box(tuple(start[cell].tolist()), tuple(stop[cell].tolist()))
            have += box.numel
            _check_borders(spec, box, units, want, "the source's shards")
            needed = formats.hull(want.format, box, spec.shape)
            holders = of.holders[cell]
            if needed != box:
                holders = tuple(holder for holder in holders if holder.box.meet(needed) == needed)
                if not holders:
                    raise UserError(
                        f"no source holds all of {said(needed)} that the scales of {said(box)} are taken over",
                        field=spec.name, value=want.format, remedy="shard it along another dimension",
                    )  # fmt: skip
            for part in _slabs(box, units, want.format, limit):
                found.append(Atom(slot, part, formats.nbytes(want.format, part.shape), holders))
        if have < want.box.numel:
            gap, *_ = less(want.box, [Box(*map(tuple, ends)) for ends in zip(of.start, of.stop, strict=True)])
            raise UserError("no source holds a part of it that is wanted", field=spec.name, value=said(gap))
    return found


def check_want(spec: TensorSpec, want: Want) -> None:
    """UserError where the want is none of this tensor, or cannot be had in its format."""
    box, shape = want.box, spec.shape
    if len(box.start) != len(shape) or not all(
        0 <= a < b <= n for a, b, n in zip(box.start, box.stop, shape, strict=True)
    ):
        raise UserError(f"a wanted box is not inside of its shape {list(shape)}", field=want.name, value=said(box))
    if not formats.converts(spec.dtype, want.format):
        raise UserError(f"of dtype {spec.dtype} does not convert to that format", field=want.name, value=want.format)
    if formats.parse(want.format).block is not None and len(shape) < 2:
        raise UserError(f"of {len(shape)} dimensions has no blocks to scale", field=want.name, value=want.format)
    _check_borders(spec, box, formats.units(want.format, shape), want, "a want")


def said(box: Box) -> str:
    """`[0:128, 64:96]`"""
    return f"[{', '.join(f'{a}:{b}' for a, b in zip(box.start, box.stop, strict=True))}]"


def _check_borders(spec: TensorSpec, box: Box, units: tuple[int, ...], want: Want, whose: str) -> None:
    for d, unit in enumerate(units):
        if box.start[d] % unit or (box.stop[d] % unit and box.stop[d] != spec.shape[d]):
            raise UserError(
                f"the border of {whose} {said(box)} cuts blocks of scales of {want.format} in dimension {d}",
                field=want.name, remedy=f"put it on a multiple of {unit}, or ask for a format without scales",
            )  # fmt: skip


def _of_boxes(by_box: dict[Box, list[Holder]]) -> Cells:
    start = np.array([box.start for box in by_box], dtype=np.int64)
    stop = np.array([box.stop for box in by_box], dtype=np.int64)
    count = len(by_box)
    return Cells(start.reshape(count, -1), stop.reshape(count, -1), tuple(map(tuple, by_box.values())))


def _disjoint(of: Cells) -> bool:
    count = len(of.start)
    step = max(1, AT_ONCE // max(count, 1))
    for low in range(0, count, step):
        part = slice(low, low + step)
        meets = (np.maximum(of.start[part, None], of.start[None]) < np.minimum(of.stop[part, None], of.stop[None])).all(
            axis=2
        )
        if meets.sum() > len(meets):  # each meets itself
            return False
    return True


def _cut(by_box: dict[Box, list[Holder]]) -> dict[Box, list[Holder]]:
    """Boxes that overlap without being equal, cut at all of their borders."""
    borders = [sorted({end for box in by_box for end in (box.start[d], box.stop[d])}) for d in range(len(_any(by_box)))]
    found: dict[Box, list[Holder]] = {}
    for box, holders in by_box.items():
        inside = [
            [end for end in ends if a <= end <= b] for ends, a, b in zip(borders, box.start, box.stop, strict=True)
        ]
        for sides in itertools.product(*map(itertools.pairwise, inside)):
            found.setdefault(Box(*zip(*sides, strict=True)), []).extend(holders)
    return found


def _any(by_box: dict[Box, list[Holder]]) -> tuple[int, ...]:
    return next(iter(by_box)).start


def _slabs(box: Box, units: tuple[int, ...], format: str, limit: int) -> Iterator[Box]:
    """The box in parts of at most `limit` bytes, or of one block where that is larger; cut in the first dimensions."""
    if formats.nbytes(format, box.shape) <= limit:
        yield box
        return
    for d, (a, b) in enumerate(zip(box.start, box.stop, strict=True)):
        blocks = -(-b // units[d]) - a // units[d]
        if blocks == 1 or _reaches_over(format, d, len(units)):
            continue
        one = formats.nbytes(format, (*box.shape[:d], min(units[d], b - a), *box.shape[d + 1 :]))
        step = units[d] * max(1, limit // one)
        low = a
        while low < b:
            high = min(b, low // units[d] * units[d] + step)
            yield from _slabs(
                Box((*box.start[:d], low, *box.start[d + 1 :]), (*box.stop[:d], high, *box.stop[d + 1 :])),
                units, format, limit,
            )  # fmt: skip
            low = high
        return
    yield box


def _reaches_over(format: str, d: int, dimensions: int) -> bool:
    """Whether a scale reaches over all of dimension d: cut there, it would travel twice."""
    block = formats.parse(format).block
    return block is not None and d >= dimensions - 2 and block[d - dimensions] == 0
