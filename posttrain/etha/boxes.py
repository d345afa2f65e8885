"""Unions and differences of boxes."""

from __future__ import annotations

from collections.abc import Iterable

from posttrain.etha.slices import Box


def union(boxes: Iterable[Box]) -> list[Box]:
    """Disjoint boxes with the elements of `boxes`, sorted, joined where two share a whole side."""
    disjoint: list[Box] = []
    for box in sorted(set(boxes), key=lambda box: (-box.numel, box)):
        disjoint += less(box, disjoint)
    before = 0
    while len(disjoint) != before:
        before = len(disjoint)
        for dim in range(len(disjoint[0].start) if disjoint else 0):
            disjoint = _join(disjoint, dim)
    return sorted(disjoint)


def less(box: Box, taken: Iterable[Box]) -> list[Box]:
    """Disjoint boxes with the elements of `box` that are in none of `taken`."""
    rest = [box]
    for each in taken:
        rest = [piece for one in rest for piece in _without(one, each)]
    return rest


def _without(box: Box, taken: Box) -> list[Box]:
    """`box` less `taken`, in at most two boxes for each dimension."""
    if (both := box.meet(taken)) is None:
        return [box]
    rest = []
    start, stop = list(box.start), list(box.stop)
    for dim in range(len(start)):
        for low, high in ((start[dim], both.start[dim]), (both.stop[dim], stop[dim])):
            if low < high:
                rest.append(Box(tuple(_with(start, dim, low)), tuple(_with(stop, dim, high))))
        start[dim], stop[dim] = both.start[dim], both.stop[dim]
    return rest


def _join(boxes: list[Box], dim: int) -> list[Box]:
    """Boxes that touch along `dim` and are alike in every other dimension, as one."""
    joined: list[Box] = []
    others = lambda box: (*_with(list(box.start), dim, 0), *_with(list(box.stop), dim, 0))  # noqa: E731
    for box in sorted(boxes, key=lambda box: (others(box), box.start[dim])):
        if joined and others(joined[-1]) == others(box) and joined[-1].stop[dim] == box.start[dim]:
            joined[-1] = Box(joined[-1].start, box.stop)
        else:
            joined.append(box)
    return joined


def _with(numbers: list[int], dim: int, number: int) -> list[int]:
    return [*numbers[:dim], number, *numbers[dim + 1 :]]
