"""Laws of reading: whatever the spans look like, every row of a part is read once, in order, within the bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posttrain.lakestream.controls import Layer
from posttrain.lakestream.offsets import Part, Span, end_of, next_chunk, rows_from


@st.composite
def tables(draw: st.DrawFn) -> dict[int, np.ndarray]:
    """Fragments of row ids: unique, with gaps, in any order and overlapping, as compaction may leave them."""
    ids = draw(st.lists(st.integers(0, 300), unique=True, max_size=80))
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    parts = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    return {number: np.sort(np.array(part, np.uint64)) for number, part in enumerate(parts) if part}


def spans_of(table: dict[int, np.ndarray]) -> list[Span]:
    return [Span(number, int(ids[0]), int(ids[-1]), len(ids), 0) for number, ids in table.items()]


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    count = draw(st.integers(1, 4))
    return Layer(count, tuple(draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))))


@st.composite
def parts(draw: st.DrawFn) -> Part:
    count = draw(st.integers(1, 5))
    return Part(draw(st.integers(0, count - 1)), count, tuple(draw(st.lists(layers(), max_size=2))))


@given(tables(), parts(), st.integers(1, 40), st.integers(0, 310))
def test_every_row_of_a_part_is_read_once_and_in_order(table, part: Part, limit: int, offset: int) -> None:
    wanted = sorted(int(i) for ids in table.values() for i in ids if i >= offset and part.mask(np.array([i]))[0])
    seen: list[int] = []
    while (chunk := next_chunk(spans_of(table), offset, limit, part, lambda s: table[s.fragment])) is not None:
        assert chunk.begin == offset < chunk.end
        got = np.sort(np.concatenate([table[number] for number in chunk.fragments]))
        got = got[(got >= chunk.begin) & (got < chunk.end)]
        got = got[part.mask(got)]
        assert len(got) <= limit
        seen += [int(i) for i in got]
        offset = chunk.end
    assert seen == wanted
    assert offset >= end_of(spans_of(table))


@given(tables(), parts(), st.integers(0, 310))
def test_rows_left_are_counted_as_they_are(table, part: Part, offset: int) -> None:
    count = rows_from(spans_of(table), offset, part, lambda s: table[s.fragment])
    assert count == sum(int(part.mask(ids[ids >= offset]).sum()) for ids in table.values())


@given(st.integers(0, 400), parts())
def test_a_mask_agrees_with_its_definition(row_id: int, part: Part) -> None:
    wanted = row_id % part.count == part.index and not any(layer.covers(row_id) for layer in part.layers)
    assert bool(part.mask(np.array([row_id], np.uint64))[0]) == wanted
