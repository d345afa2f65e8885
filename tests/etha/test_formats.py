"""Formats: what a slice encodes to is what it has in the whole tensor encoded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.etha import formats
from posttrain.etha.layout import Piece
from posttrain.etha.placement import Arena, Places
from posttrain.etha.plan import DIRECT, Bucket, Transfer
from posttrain.etha.slices import Box, Want
from tests.etha.moves import expected, filled

PLAIN = [*formats.FLOATS, *formats.WHOLE_NUMBERS]
SCALED = [f"{dtype}/{scales}" for dtype in formats.SCALED for scales in formats.BLOCKS]


@pytest.mark.parametrize("dtype", PLAIN)
def test_plain_bytes_are_the_tensors(dtype: str) -> None:
    tensor = filled((3, 5), dtype)
    data = formats.encode(tensor, dtype)
    assert data.dtype == torch.uint8 and len(data) == formats.nbytes(dtype, (3, 5))
    assert torch.equal(data, tensor.contiguous().view(-1).view(torch.uint8))
    assert torch.equal(formats.decode(data, dtype, (3, 5)).view(torch.uint8), tensor.view(torch.uint8))


def test_scalars_and_conversions() -> None:
    assert formats.decode(formats.encode(torch.tensor(2.5), "bfloat16"), "bfloat16", ()).item() == 2.5
    tensor = filled((7, 3), "float32")
    assert torch.equal(formats.decode(formats.encode(tensor, "bfloat16"), "bfloat16", (7, 3)), tensor.bfloat16())


@pytest.mark.parametrize("text", SCALED)
def test_scales_by_hand(text: str) -> None:
    """Block by block: the largest magnitude is the largest code, a block of zeros has the scale 1."""
    tensor = filled((2, 200, 300), "float32")
    tensor[0, :128, :128] = 0
    tensor[1, 5] = 0
    codes, scales = formats.split(formats.encode(tensor, text), text, (2, 200, 300))
    high, wide = formats.parse(text).block
    largest = formats.SCALED[formats.parse(text).dtype]
    for e in range(2):
        for i, top in enumerate(range(0, 200, high)):
            for j, left in enumerate(range(0, 300, wide or 300)):
                part = (e, slice(top, top + high), slice(left, left + (wide or 300)))
                most = tensor[part].abs().max()
                scale = most / largest if most > 0 else torch.tensor(1.0)
                assert scales[e, i, j] == scale
                by_hand = tensor[part] / scale
                by_hand = by_hand.round().to(torch.int8) if "int8" in text else by_hand.to(torch.float8_e4m3fn)
                assert torch.equal(codes[part].float(), by_hand.float())
                assert most == 0 or codes[part].float().abs().max() == largest
    step = 0.5 / 127 if "int8" in text else 2**-4  # half a code of the largest; half a bit of three
    close = formats.decode(formats.encode(tensor, text), text, (2, 200, 300))
    assert ((close - tensor).abs() <= step * tensor.abs().amax() + 1e-6).all()


@settings(max_examples=60)
@given(st.data(), st.sampled_from([*SCALED, "bfloat16", "float32", "int64", "float8_e4m3fn"]))
def test_any_cut_arrives_as_in_the_whole(data: st.DataObject, text: str) -> None:
    shape = data.draw(st.sampled_from([(260, 132), (2, 129, 128), (5, 7), (2, 3, 2, 140)]))
    tensor = filled(shape, "int64" if text == "int64" else "float32", seed=1)
    units = formats.units(text, shape)
    ends = []
    for size, unit in zip(shape, units, strict=True):
        borders = sorted({*range(0, size, unit), size})
        ends.append(data.draw(st.lists(st.sampled_from(borders), min_size=2, max_size=2, unique=True).map(sorted)))
    want = Want("w", Box(tuple(a for a, _ in ends), tuple(b for _, b in ends)), text)
    # In two parts, where there is a border to cut it at, and at an odd place in memory.
    d = data.draw(st.integers(0, len(shape) - 1))
    inside = [b for b in range(0, shape[d], units[d]) if want.box.start[d] < b < want.box.stop[d]]
    if formats.hull(text, want.box, shape).start[d] != want.box.start[d] or len(shape) - 1 == d:
        inside = []
    cut = data.draw(st.sampled_from(inside)) if inside else want.box.stop[d]
    low = Box(want.box.start, (*want.box.stop[:d], cut, *want.box.stop[d + 1 :]))
    high = Box((*want.box.start[:d], cut, *want.box.start[d + 1 :]), want.box.stop)
    arena = Arena.of([want])
    memory = torch.zeros(arena.nbytes, dtype=torch.uint8)
    for part in [low, high] if inside else [low]:
        at, nbytes = data.draw(st.integers(0, 8)), formats.nbytes(text, part.shape)
        moved = torch.zeros(at + nbytes, dtype=torch.uint8)[at:]
        formats.take(tensor, Piece(Box.whole(shape), (0,) * len(shape)), part, text, moved)
        bucket = Bucket(0, 0, (0,), (DIRECT,), nbytes, (Transfer("w", part, 0, 0, 0, 0, nbytes),))
        Places.of(memory, arena, bucket, {0: want}).unpack(moved)
    assert torch.equal(arena.buffer(memory, want), expected(tensor, want))


@pytest.mark.parametrize("text", ["bf16", "bfloat16/128x128", "int8/64", "int8/", ""])
def test_an_unknown_format_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(UserError, match=r"is no format.*float8_e4m3fn/128x128"):
        formats.parse(text)


def test_what_converts() -> None:
    assert formats.converts("float32", "bfloat16") and formats.converts("bfloat16", "int8/channel")
    assert formats.converts("int64", "int64")
    assert not formats.converts("int64", "bfloat16") and not formats.converts("float32", "int8")
    assert not formats.converts("uint8", "float8_e4m3fn/128x128")
