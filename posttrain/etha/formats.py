"""The bytes that a box of a tensor travels as and rests in: a torch dtype, or one with scales.

A format is a dtype by torch's name ("bfloat16") or a dtype and how far one scale reaches: "float8_e4m3fn/128x128" has a
scale per block of the last two dimensions (as DeepSeek-V3's checkpoints, arXiv 2412.19437, section 3.3.2),
"float8_e4m3fn/channel" and "int8/channel" one per row, that is per output channel. A value is its code times its scale;
a scale is the largest magnitude under it over the format's largest, in float32, and 1 where all is zero.

Invariants. Encoded bytes are the float32 scales, then the codes, each row-major without gaps; without scales only the
elements. A box encoded alone has the very bytes that it has in the whole tensor encoded: scales are always taken over
whole blocks, of which the source must hold all (`hull`), and borders of boxes lie on borders of blocks (`units`). Each
part of a row that is cut has the row's scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from posttrain.errors import UserError
from posttrain.etha.layout import Piece
from posttrain.etha.slices import Box

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
WHOLE_NUMBERS = {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
SCALED = {"float8_e4m3fn": 448.0, "int8": 127.0}  # the largest code
BLOCKS: dict[str, tuple[int, int]] = {"128x128": (128, 128), "channel": (1, 0)}  # 0: the whole dimension
SCALE = 4  # bytes


@dataclass(frozen=True, slots=True)
class Format:
    """`block` is the reach of one scale in the last two dimensions (0: the whole of it), None without scales."""

    dtype: str
    itemsize: int
    block: tuple[int, int] | None


@cache
def parse(text: str) -> Format:
    dtype, _, scales = text.partition("/")
    sizes = FLOATS | WHOLE_NUMBERS
    if dtype not in sizes or (scales and (dtype not in SCALED or scales not in BLOCKS)) or text.endswith("/"):
        known = [*sizes, *(f"{dtype}/{scales}" for dtype in SCALED for scales in BLOCKS)]
        raise UserError("is no format of weights", field="format", value=text, remedy=f"one of {', '.join(known)}")
    return Format(dtype, sizes[dtype], BLOCKS[scales] if scales else None)


def converts(dtype: str, text: str) -> bool:
    """Whether a source of this dtype can send the format: floating point as any such, the rest only as it is."""
    to = parse(text)
    if to.block is not None:
        return dtype in FLOATS
    return dtype == to.dtype or (dtype in FLOATS and to.dtype in FLOATS)


def units(text: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Per dimension of the whole tensor, of what a border of a box must be a multiple unless it is the tensor's end."""
    block = parse(text).block
    return (1,) * len(shape) if block is None else (1,) * (len(shape) - 2) + tuple(b or 1 for b in block)


def hull(text: str, box: Box, shape: tuple[int, ...]) -> Box:
    """What a source must hold of the whole tensor to encode the box: all that its scales reach over."""
    block = parse(text).block
    if block is None:
        return box
    start, stop = list(box.start), list(box.stop)
    for d, size in zip((-2, -1), block, strict=True):
        if size == 0:
            start[d], stop[d] = 0, shape[d]
    return Box(tuple(start), tuple(stop))


def scale_shape(text: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the scales of a box of that shape; () without scales."""
    block = parse(text).block
    if block is None:
        return ()
    return *shape[:-2], *(-(-size // (reach or size)) for size, reach in zip(shape[-2:], block, strict=True))


def nbytes(text: str, shape: tuple[int, ...]) -> int:
    """Bytes of an encoded box of that shape."""
    form = parse(text)
    scales = 0 if form.block is None else SCALE * math.prod(scale_shape(text, shape))
    return scales + form.itemsize * math.prod(shape)


def take(local: Tensor, piece: Piece, box: Box, text: str, out: Tensor) -> None:
    """Write the encoded box, which lies in `piece` of the local tensor, to `out` (uint8, of `nbytes` elements)."""
    import torch

    if parse(text).block is None:
        _fill(out, local[piece.local(box)], getattr(torch, text))
        return
    around = hull(text, box, piece.box.stop)  # of a dimension that has to be whole the piece holds all
    codes, scales = _quantise(local[piece.local(around)], text)
    codes = codes[box.within(around).index()]
    cut = scales.numel() * SCALE
    _fill(out[:cut], scales, torch.float32)
    _fill(out[cut:], codes, codes.dtype)


def encode(tensor: Tensor, text: str, box: Box | None = None) -> Tensor:
    """The encoded bytes of a box of the whole tensor, or of all of it."""
    import torch

    whole = Piece.whole(tuple(tensor.shape))
    box = box or whole.box
    out = torch.empty(nbytes(text, box.shape), dtype=torch.uint8)
    take(tensor, whole, box, text, out)
    return out


def split(data: Tensor, text: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
    """Codes (or elements) and float32 scales of encoded bytes, as views."""
    import torch

    form = parse(text)
    dtype = getattr(torch, form.dtype)
    if form.block is None:
        return data.view(dtype).view(shape), None
    scales = scale_shape(text, shape)
    cut = SCALE * math.prod(scales)
    return data[cut:].view(dtype).view(shape), data[:cut].view(torch.float32).view(scales)


def decode(data: Tensor, text: str, shape: tuple[int, ...]) -> Tensor:
    """The elements: a view in the format's dtype, or float32 values from codes and scales."""
    values, scales = split(data, text, shape)
    if scales is None:
        return values
    block = parse(text).block
    assert block is not None
    for d, reach in zip((-2, -1), block, strict=True):
        scales = scales.repeat_interleave(reach or shape[d], d).narrow(d, 0, shape[d])
    return values.float() * scales


def _quantise(x: Tensor, text: str) -> tuple[Tensor, Tensor]:
    import torch
    from torch.nn.functional import pad

    form = parse(text)
    assert form.block is not None
    largest = SCALED[form.dtype]
    rows, columns = x.shape[-2:]
    high, wide = form.block[0], form.block[1] or columns
    padded = pad(x.float(), (0, -columns % wide, 0, -rows % high))
    blocks = padded.unflatten(-1, (-1, wide)).unflatten(-3, (-1, high))
    scales = blocks.abs().amax((-3, -1), keepdim=True) / largest
    scales = torch.where(scales > 0, scales, torch.ones((), dtype=torch.float32))
    codes = (blocks / scales).clamp(-largest, largest)
    if form.dtype == "int8":
        codes = codes.round()
    codes = codes.to(getattr(torch, form.dtype)).flatten(-4, -3).flatten(-2, -1)
    return codes[..., :rows, :columns], scales.squeeze(-1).squeeze(-2)


def _fill(out: Tensor, values: Tensor, dtype) -> None:
    """Copy and convert in one go where the memory's alignment lets `out` be seen as that dtype."""
    import torch

    if out.data_ptr() % dtype.itemsize == 0 and out.storage_offset() % dtype.itemsize == 0:
        out.view(dtype).view(values.shape).copy_(values)
    else:
        out.copy_(values.to(dtype).contiguous().view(-1).view(torch.uint8))
