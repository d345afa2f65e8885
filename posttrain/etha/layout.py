"""What each source rank holds of every tensor, in the terms of DTensor: meshes, and placements per mesh dimension.

A rank's local tensor is a gapless array that one or more pieces make up: each is a box of the whole tensor, and says
where in the local tensor it lies. An even shard is one piece; a shard of FSDP2 over tensor parallelism (`_StridedShard`)
may be several. Replicas are ranks that hold the same boxes: any of them may be the source. Invariants: the pieces of one
rank for one tensor do not overlap, and their boxes lie inside the tensor; a rank that holds nothing of a tensor does not
name it. Partial sums are no weights and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posttrain.etha.slices import Box


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A whole tensor under its Hugging Face name; `dtype` by torch's name, as "bfloat16"."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Piece(NamedTuple):
    """A box of the whole tensor that a rank holds, and where in the rank's local tensor it begins."""

    box: Box
    at: tuple[int, ...]

    def local(self, box: Box) -> tuple[slice, ...]:
        """Where in the local tensor the part `box` of this piece lies."""
        return tuple(
            slice(at + a - base, at + b - base)
            for at, base, a, b in zip(self.at, self.box.start, box.start, box.stop, strict=True)
        )


@dataclass(frozen=True, slots=True)
class RankLayout:
    """What one rank holds, by the tensor's name."""

    tensors: Mapping[str, tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class SourceLayout:
    """All source ranks in order. `aliases` gives a tied tensor's other names: each points to a name in `specs`."""

    specs: Mapping[str, TensorSpec]
    ranks: tuple[RankLayout, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
