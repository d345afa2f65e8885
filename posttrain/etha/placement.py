"""Where bytes lie in a destination's memory: wants one after the other, and the boxes of buckets inside of them.

Both sides compute it from the same list of wants. A bucket's bytes are those of its transfers in order, each scales
first and then codes (formats.py), whether they lie packed or in their places: so both have the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.etha import formats
from posttrain.etha.layout import merged
from posttrain.etha.plan import Bucket
from posttrain.etha.slices import Box, Want
from posttrain.etha.transports.base import Runs

_ALIGNED = 16  # bytes; small, so that neighbours touch and are read as one


@dataclass(frozen=True)
class Arena:
    """`offsets` of the wants' buffers in memory of `nbytes`."""

    offsets: Mapping[Want, int]
    nbytes: int

    @classmethod
    def of(cls, wants: Sequence[Want]) -> Arena:
        offsets, end = {}, 0
        for want in dict.fromkeys(wants):
            offsets[want] = end
            end += -(-formats.nbytes(want.format, want.box.shape) // _ALIGNED) * _ALIGNED
        return cls(offsets, max(end, _ALIGNED))

    def buffer(self, memory: Tensor, want: Want) -> Tensor:
        start = self.offsets[want]
        return memory[start : start + formats.nbytes(want.format, want.box.shape)]

    def tensors(self, memory: Tensor) -> dict[Want, Tensor]:
        """Each want in the shape of its box: a view, or float32 values of one with scales."""
        return {want: formats.decode(self.buffer(memory, want), want.format, want.box.shape) for want in self.offsets}


@dataclass(frozen=True)
class Places:
    """A bucket's places in memory: views in their dtypes, in the order of its bytes; and as runs of bytes where every
    place is one, else None."""

    views: tuple[Tensor, ...]
    runs: Runs | None
    nbytes: int

    @classmethod
    def of(cls, memory: Tensor, arena: Arena, bucket: Bucket, wants: Mapping[int, Want]) -> Places:
        views: list[Tensor] = []
        for transfer in bucket.transfers:
            want = wants[transfer.want]
            views += _parts(arena.buffer(memory, want), want, transfer.box)
        return cls(tuple(views), _runs(memory, views), bucket.nbytes)

    def packed(self) -> Tensor:
        """A copy of the bucket's bytes, without gaps."""
        return torch.cat([view.reshape(-1).view(torch.uint8) for view in self.views])

    def unpack(self, data: Tensor) -> None:
        """Put a bucket's bytes into their places."""
        at = 0
        for view in self.views:
            nbytes = view.numel() * view.element_size()
            part = data[at : at + nbytes]
            if (part.data_ptr() % view.element_size()) or part.storage_offset() % view.element_size():
                part = part.clone()
            view.copy_(part.view(view.dtype).view(view.shape))
            at += nbytes


def _parts(buffer: Tensor, want: Want, box: Box) -> list[Tensor]:
    """The box's scales, if any, and its codes, as views of the want's buffer."""
    values, scales = formats.split(buffer, want.format, want.box.shape)
    inner = box.within(want.box)
    codes = values[inner.index()]
    if scales is None:
        return [codes]
    block = formats.parse(want.format).block
    assert block is not None
    grid = [slice(a, b) for a, b in zip(inner.start[:-2], inner.stop[:-2], strict=True)]
    for a, b, size in zip(inner.start[-2:], inner.stop[-2:], block, strict=True):
        grid.append(slice(a // size, -(-b // size)) if size else slice(0, 1))
    return [scales[tuple(grid)], codes]


def _runs(memory: Tensor, views: Sequence[Tensor]) -> Runs | None:
    if not all(view.is_contiguous() for view in views):
        return None
    base = memory.data_ptr()
    return merged((view.data_ptr() - base, view.numel() * view.element_size()) for view in views)
