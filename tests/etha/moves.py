"""Plans carried out in memory, and what a destination must hold afterwards, worked out without any of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor.placement_types import Shard, _StridedShard

from posttrain.etha import formats
from posttrain.etha.layout import Placed, SourceLayout
from posttrain.etha.placement import Arena, Places
from posttrain.etha.plan import Bucket, Plan
from posttrain.etha.slices import Want

POISON = 0xA5


def filled(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Tensor:
    """Elements that differ from each other as far as the dtype can tell."""
    draw = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(shape, generator=draw).to(kind)
    return torch.randint(0, 2 if kind == torch.bool else 120, shape, generator=draw).to(kind)


def shards(tensor: Tensor, placed: Placed) -> list[Tensor]:
    """The local tensor at each place of the mesh, row-major, as torch splits: FSDP2 what the others have left."""
    found = []
    for place in itertools.product(*map(range, placed.mesh.shape)):
        local = tensor
        splits = list(zip(placed.mesh.shape, place, placed.placements, strict=True))
        if placed.by == "fsdp2":
            inner = [split for split in splits if not isinstance(split[2], _StridedShard)]
            outer = [split for split in splits if isinstance(split[2], _StridedShard)]
            splits = inner + [(count, which, Shard(placement.dim)) for count, which, placement in outer]
        for count, which, placement in splits:
            if isinstance(placement, (Shard, _StridedShard)):
                local = placement._split_tensor(local, count, with_padding=False)[0][which]
        found.append(local)
    return found


def locals_of(tensors: Mapping[str, Tensor], placed: Mapping[str, Placed], ranks: int) -> list[dict[str, Tensor]]:
    found: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
    for name, its in placed.items():
        for rank, local in zip(its.mesh.ranks or range(ranks), shards(tensors[name], its), strict=False):
            found[rank][name] = local
    return found


def carry_out(
    plan: Plan, source: SourceLayout, held: Sequence[Mapping[str, Tensor]], wants: Sequence[Sequence[Want]]
) -> list[dict[Want, Tensor]]:
    """The bytes of each want that every destination has in the end, by way of buckets as transports carry them."""
    arenas = [Arena.of(listed) for listed in wants]
    memory = [torch.full((arena.nbytes,), POISON, dtype=torch.uint8) for arena in arenas]
    by_number = dict(enumerate(plan.wants))
    for sender, layout in enumerate(source.ranks):
        for bucket in plan.for_source(sender):
            data = torch.empty(bucket.nbytes, dtype=torch.uint8)
            for move in bucket.transfers:
                piece, part = layout.tensors[move.name][move.piece], data[move.offset : move.offset + move.nbytes]
                formats.take(held[sender][move.name], piece, move.box, plan.wants[move.want].format, part)
            for rank in bucket.destinations:
                Places.of(memory[rank], arenas[rank], bucket, by_number).unpack(data)
    return [
        {want: arena.buffer(held, want) for want in arena.offsets} for arena, held in zip(arenas, memory, strict=True)
    ]


def expected(tensor: Tensor, want: Want) -> Tensor:
    """The want's bytes, cut out of the whole tensor after it was converted as a whole."""
    codes, scales = formats.split(formats.encode(tensor, want.format), want.format, tuple(tensor.shape))
    parts = [codes[want.box.index()]]
    if scales is not None:
        reach = [1] * (tensor.ndim - 2) + [
            size or whole for size, whole in zip(formats.parse(want.format).block, tensor.shape[-2:], strict=True)
        ]
        grid = tuple(
            slice(a // size, -(-b // size)) for a, b, size in zip(want.box.start, want.box.stop, reach, strict=True)
        )
        parts.insert(0, scales[grid])
    return torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])


def check(
    plan: Plan,
    source: SourceLayout,
    tensors: Mapping[str, Tensor],
    held: Sequence[Mapping[str, Tensor]],
    wants: Sequence[Sequence[Want]],
    limit: int,
) -> None:
    """Every byte equals the reference, came once, and no other was moved; the plan's own books agree."""
    staging = carry_out(plan, source, held, wants)
    for rank, listed in enumerate(wants):
        for want in listed:
            name = source.aliases.get(want.name, want.name)
            assert torch.equal(staging[rank][want], expected(tensors[name], want)), (rank, want)
        buckets = plan.for_destination(rank)
        assert sum(bucket.nbytes for bucket in buckets) == sum(map(len, staging[rank].values()))
        came: Counter[int] = Counter()
        for bucket in buckets:
            for move in bucket.transfers:
                came[move.want] += move.box.numel
        assert {plan.wants[n]: count for n, count in came.items()} == {w: w.box.numel for w in listed}
    for bucket in plan.buckets:
        check_bucket(plan, bucket, limit)
    assert [b.number for b in plan.buckets] == list(range(len(plan.buckets)))
    by_source = [b for rank in range(len(source.ranks)) for b in plan.for_source(rank)]
    assert sorted(b.number for b in by_source) == list(range(len(plan.buckets)))


def check_bucket(plan: Plan, bucket: Bucket, limit: int) -> None:
    assert bucket.nbytes <= limit or len(bucket.transfers) == 1
    assert len(set(bucket.destinations)) == len(bucket.destinations) == len(bucket.relay) > 0
    end = 0
    for move in bucket.transfers:
        form = formats.parse(plan.wants[move.want].format)
        assert move.offset == end and move.source == bucket.source
        assert move.nbytes == formats.nbytes(plan.wants[move.want].format, move.box.shape)
        assert form.block is not None or move.offset % form.itemsize == 0
        end += move.nbytes
    assert end == bucket.nbytes
    came = {-1}
    waiting = dict(zip(bucket.destinations, bucket.relay, strict=True))
    while ready := [rank for rank, above in waiting.items() if above in came]:
        came.update(ready)
        for rank in ready:
            del waiting[rank]
    assert not waiting  # all are reached from the source


def mesh_size(placed: Mapping[str, Placed]) -> int:
    return max(math.prod(one.mesh.shape) for one in placed.values())
