"""Where the elements of a strided view lie in the row-major tensor that it is a view of, as a box of that tensor.

Invariant: the box covers the view; it is the smallest that does, but where a dimension of the view goes on over the end
of one of the tensor's: then that one is taken whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from posttrain.etha.slices import Box

if TYPE_CHECKING:
    from torch import Tensor


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor without gaps."""
    return tuple(accumulate((1, *reversed(shape[1:])), lambda a, b: a * b))[::-1] if shape else ()


@dataclass(frozen=True, slots=True)
class Region:
    """The smallest box of a row-major tensor around a strided view of it, and that view in terms of the box.

    Dimension k of the view has the size `sizes[k]` and goes along dimension `along[k]` of the box in steps of
    `steps[k]`, beginning at `origin`. `merged` where a dimension of the view goes on over the end of one of the box's.
    """

    box: Box
    sizes: tuple[int, ...]
    along: tuple[int, ...]
    steps: tuple[int, ...]
    origin: tuple[int, ...]
    merged: bool

    def take(self, data: Tensor) -> Tensor:
        """The view, of the box's elements."""
        if self.merged:
            data = data.contiguous()
        strides = [step * data.stride(dim) if step else 0 for dim, step in zip(self.along, self.steps, strict=True)]
        offset = sum(at * stride for at, stride in zip(self.origin, data.stride(), strict=True))
        return data.as_strided(self.sizes, strides, data.storage_offset() + offset)


def region(shape: tuple[int, ...], view: Tensor) -> Region:
    """Of `view`, whose strides and offset are in a tensor of this shape; it has elements."""
    whole, offset = row_major(shape), view.storage_offset()
    start = [offset // stride % size for stride, size in zip(whole, shape, strict=True)]
    extent = [0] * len(shape)
    along, steps = [], []
    for size, stride in zip(view.shape, view.stride(), strict=True):
        dim = next((d for d, s in enumerate(whole) if shape[d] > 1 and s <= stride), len(shape) - 1)
        step = stride // whole[dim] if size > 1 and stride else 0
        if step and step * whole[dim] != stride:
            dim, step = len(shape) - 1, stride  # no dimension has such steps: along the innermost, over its ends
        along.append(dim)
        steps.append(step)
        if step:
            extent[dim] += step * (size - 1)
    first, last, merged = list(start), list(start), False
    for dim in reversed(range(len(shape))):
        end = start[dim] + extent[dim]
        if end < shape[dim]:
            last[dim] = end
            continue
        merged = True
        first[dim], last[dim] = 0, shape[dim] - 1
        extent[dim - 1] += end // shape[dim]
    box = Box(tuple(first), tuple(each + 1 for each in last))
    origin = tuple(a - b for a, b in zip(start, first, strict=True))
    return Region(box, tuple(view.shape), tuple(along), tuple(steps), origin, merged)
