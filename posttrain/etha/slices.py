"""Boxes of tensors: what ranks hold, what they want, and what is moved are all said in these terms.

A box is half-open and in the coordinates of the whole tensor under its Hugging Face name, whatever a rank's own memory
looks like. Invariant: a box of no element is never made; a scalar's box has no dimension and one element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self


class Box(NamedTuple):
    """Elements `start[d] <= i < stop[d]` in every dimension d."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Self:
        return cls((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def meet(self, other: Box) -> Box | None:
        """What both hold; None where that is nothing."""
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        return Box(start, stop) if all(a < b for a, b in zip(start, stop, strict=True)) else None

    def within(self, outer: Box) -> Box:
        """This box in the coordinates of `outer`, which holds it."""
        return Box(
            tuple(a - b for a, b in zip(self.start, outer.start, strict=True)),
            tuple(a - b for a, b in zip(self.stop, outer.start, strict=True)),
        )

    def index(self) -> tuple[slice, ...]:  # type: ignore[override]
        """To index an array with; hides what every tuple has under this name."""
        return tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))


@dataclass(frozen=True, slots=True)
class Want:
    """A box that an inference rank needs of the tensor `name`, and the format its bytes arrive in.

    `format` is a torch dtype by its name ("bfloat16"), or one with scales ("float8_e4m3fn/128x128"), which the source
    converts to once per slice. The bytes of a want lie row-major, without gaps.
    """

    name: str
    box: Box
    format: str
