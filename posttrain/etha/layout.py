"""What each source rank holds of every tensor, in the terms of DTensor: meshes, and placements per mesh dimension.

A rank's local tensor is a gapless array that one or more pieces make up: each is a box of the whole tensor, and says
where in the local tensor it lies. An even shard is one piece; `_StridedShard` may give several. Replicas are ranks that
hold the same boxes: any of them may be the source. Invariants: a rank's pieces of one tensor do not overlap, and lie
inside of it; a rank that holds nothing of a tensor does not name it. Partial sums are no weights and are refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from posttrain.errors import UserError
from posttrain.etha.slices import Box

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.tensor.placement_types import Placement


# Who made a strided shard. FSDP2 shards what the mesh dimensions to the right have left; `distribute_tensor` reads the
# same placements from left to right. Both come to the same only where the division leaves little over.
Maker = Literal["fsdp2", "distribute_tensor"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A whole tensor under its Hugging Face name; `dtype` by torch's name, as "bfloat16"."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Self:
        return cls(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class Piece(NamedTuple):
    """A box of the whole tensor that a rank holds, and where in the rank's local tensor it begins."""

    box: Box
    at: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Self:
        return cls(Box.whole(shape), (0,) * len(shape))

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


class Mesh(NamedTuple):
    """A DeviceMesh on paper: its shape, and its ranks row-major; () stands for 0, 1, 2, …"""

    shape: tuple[int, ...]
    ranks: tuple[int, ...] = ()


class Placed(NamedTuple):
    """A tensor on paper: one placement (of torch.distributed.tensor) for each of the mesh's dimensions."""

    shape: tuple[int, ...]
    dtype: str
    mesh: Mesh
    placements: tuple[Placement, ...]
    by: Maker | None = None


def describe(tensors: Mapping[str, Placed], ranks: int, aliases: Mapping[str, str] | None = None) -> SourceLayout:
    """The layout of `ranks` ranks that hold these tensors. Equal placements share their pieces."""
    held: list[dict[str, tuple[Piece, ...]]] = [{} for _ in range(ranks)]
    known: dict[tuple, list[tuple[Piece, ...]]] = {}
    for name, placed in tensors.items():
        shape, mesh = tuple(placed.shape), placed.mesh
        members = mesh.ranks or tuple(range(math.prod(mesh.shape)))
        if len(members) != math.prod(mesh.shape) or len(set(members)) != len(members):
            raise UserError(f"a mesh of {math.prod(mesh.shape)} ranks lists others", field=name, value=members)
        if not all(0 <= rank < ranks for rank in members):
            raise UserError(f"its mesh has a rank that is not one of the {ranks}", field=name, value=max(members))
        key = (shape, mesh.shape, placed.placements, placed.by)
        if key not in known:
            everywhere = itertools.product(*map(range, mesh.shape))
            known[key] = [pieces(name, shape, mesh.shape, place, placed.placements, placed.by) for place in everywhere]
        for rank, its in zip(members, known[key], strict=True):
            if its:
                held[rank][name] = its
    specs = {name: TensorSpec(name, tuple(placed.shape), placed.dtype) for name, placed in tensors.items()}
    return SourceLayout(specs, tuple(map(RankLayout, held)), dict(aliases or {}))


def whole(specs: Iterable[TensorSpec], ranks: int = 1) -> SourceLayout:
    """Ranks of which each holds everything: readers of a checkpoint, or replicas of data parallelism."""
    known = {spec.name: spec for spec in specs}
    rank = RankLayout({name: (Piece.whole(spec.shape),) for name, spec in known.items() if math.prod(spec.shape)})
    return SourceLayout(known, (rank,) * ranks)


def join(parts: Sequence[SourceLayout]) -> SourceLayout:
    """The layout of all ranks from that which each rank says of itself; a name tied on one rank is tied on all."""
    aliases = {name: target for part in parts for name, target in part.aliases.items()}
    specs: dict[str, TensorSpec] = {}
    first: dict[str, int] = {}
    for rank, part in enumerate(parts):
        for name, spec in part.specs.items():
            if specs.setdefault(name, spec) != spec:
                raise UserError(
                    f"ranks {first[name]} and {rank} differ: {specs[name].dtype} {list(specs[name].shape)} and"
                    f" {spec.dtype} {list(spec.shape)}",
                    field=name,
                    remedy="all ranks must hold one model",
                )
            first.setdefault(name, rank)
    for name in aliases:
        specs.pop(name, None)
    ranks = (rank for part in parts for rank in part.ranks)
    return SourceLayout(
        specs,
        tuple(RankLayout({name: its for name, its in rank.tensors.items() if name not in aliases}) for rank in ranks),
        aliases,
    )


def pieces(
    name: str,
    shape: tuple[int, ...],
    mesh: tuple[int, ...],
    place: Sequence[int],
    placements: Sequence[Placement],
    by: Maker | None = None,
) -> tuple[Piece, ...]:
    """What the rank at `place` of a mesh of that shape holds; UserError naming the tensor where that cannot be said."""
    if len(placements) != len(mesh):
        raise UserError(f"{len(placements)} placements for a mesh of {len(mesh)} dimensions", field=name)
    per_dimension = [[(0, size)] for size in shape]
    for d, parts in _by_dimension(name, len(shape), mesh, place, placements).items():
        readings = {"fsdp2": _shards(shape[d], _outside_last(parts)), "distribute_tensor": _shards(shape[d], parts)}
        if by is None and readings["fsdp2"] != readings["distribute_tensor"]:
            raise UserError(
                f"dimension {d} of size {shape[d]} is divided so unevenly that it matters who placed it",
                field=name, value=tuple(map(str, placements)), remedy=f"say by= one of {', '.join(readings)}",
            )  # fmt: skip
        per_dimension[d] = readings[by or "fsdp2"]
    found = []
    for cut in itertools.product(*map(_with_offsets, per_dimension)):
        box = Box(tuple(start for start, _, _ in cut), tuple(start + size for start, size, _ in cut))
        found.append(Piece(box, tuple(at for _, _, at in cut)))
    return tuple(found) if math.prod(shape) else ()


def _by_dimension(name: str, rank: int, mesh: Sequence[int], place: Sequence[int], placements: Sequence[Placement]):
    """Per dimension that is sharded: (chunks, which of them, split factor), from the mesh's left to its right."""
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor.placement_types import Shard, _StridedShard

    found: dict[int, list[tuple[int, int, int]]] = {}
    for count, which, placement in zip(mesh, place, placements, strict=True):
        match placement:
            case Replicate():
                continue
            case _StridedShard() | Shard():
                if not -rank <= placement.dim < rank:
                    raise UserError(f"has no dimension to shard {placement}", field=name, value=f"{rank} dimensions")
                factor = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
                found.setdefault(placement.dim % rank, []).append((count, which, factor))
            case Partial():
                raise UserError("is a partial sum, no weight", field=name, remedy="reduce it before it is sent")
            case _:
                raise UserError("is placed in an unknown way", field=name, value=placement)
    return found


def _outside_last(parts: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The parts in the order in which FSDP2 made them: those whose factor is the shards to their right come last."""
    inside, outside = [], []
    for i, (count, which, factor) in enumerate(parts):
        to_the_right = math.prod(count for count, _, inner in parts[i + 1 :] if inner == 1)
        if factor == to_the_right != 1:
            outside.append((count, which, 1))
        else:
            inside.append((count, which, factor))
    return inside + outside


def _shards(size: int, parts: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Segments (start, size) of a dimension that are left on one rank, in the order of its memory."""
    segments = [(0, size)]
    for count, which, factor in parts:
        total = sum(length for _, length in segments)
        first = -(-total // factor)
        left: list[tuple[int, int]] = []
        for begin in range(0, total, first or 1):
            length = min(first, total - begin)
            chunk = -(-length // count)
            low, high = min(which * chunk, length), min((which + 1) * chunk, length)
            left += _cut(segments, begin + low, begin + high)
        segments = merged(left)
    return segments


def _cut(segments: Iterable[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Elements `low` to `high` of the segments laid one after the other."""
    at = 0
    for start, length in segments:
        a, b = max(low, at), min(high, at + length)
        if a < b:
            yield start + a - at, b - a
        at += length


def merged(segments: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Segments (start, size) in the same order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for start, length in segments:
        if found and sum(found[-1]) == start:
            found[-1] = (found[-1][0], found[-1][1] + length)
        else:
            found.append((start, length))
    return found


def _with_offsets(segments: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    offsets = itertools.accumulate((length for _, length in segments), initial=0)
    return [(start, length, at) for (start, length), at in zip(segments, offsets, strict=False)]
