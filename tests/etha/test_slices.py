"""Boxes, against sets of points."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posttrain.etha.slices import Box


def sides() -> st.SearchStrategy[tuple[int, int]]:
    return st.lists(st.integers(0, 6), min_size=2, max_size=2, unique=True).map(lambda ends: tuple(sorted(ends)))


def points(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(a, b) for a, b in zip(box.start, box.stop, strict=True))))


def box(ends: list[tuple[int, int]]) -> Box:
    return Box(tuple(a for a, _ in ends), tuple(b for _, b in ends))


@given(st.integers(0, 3).flatmap(lambda n: st.tuples(*[st.lists(sides(), min_size=n, max_size=n)] * 2)))
def test_boxes_are_sets_of_points(pair: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    one, other = map(box, pair)
    met = one.meet(other)
    assert points(one) & points(other) == (points(met) if met else set())
    assert one.numel == len(points(one)) and met == other.meet(one)
    array = np.arange(7 ** len(one.start)).reshape((7,) * len(one.start))
    assert array[one.index()].shape == one.shape
    if met:
        assert (array[one.index()][met.within(one).index()] == array[met.index()]).all()
    assert Box.whole(array.shape).meet(one) == one
