"""Layouts on paper against torch's own shards; what a live model says of itself is in test_live.py."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from posttrain.errors import UserError
from posttrain.etha.layout import (
    Mesh,
    Piece,
    Placed,
    RankLayout,
    SourceLayout,
    TensorSpec,
    describe,
    join,
    pieces,
    whole,
)
from posttrain.etha.slices import Box
from tests.etha.moves import shards


@st.composite
def strided(draw: st.DrawFn) -> Placed:
    """Any placements, as `distribute_tensor` reads them."""
    shape = tuple(draw(st.lists(st.integers(1, 17), min_size=1, max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    one = st.one_of(
        st.just(Replicate()),
        st.builds(Shard, dims),
        st.builds(lambda dim, factor: _StridedShard(dim, split_factor=factor), dims, st.integers(2, 4)),
    )
    return Placed(shape, "int64", Mesh(mesh), tuple(draw(one) for _ in mesh), "distribute_tensor")


@st.composite
def fsdp_over_tp(draw: st.DrawFn) -> Placed:
    """Replicas of FSDP2 over tensor (or expert, and tensor) parallelism in one dimension, evenly or not."""
    shape = (draw(st.integers(1, 60)), draw(st.integers(1, 3)))
    replicas, fsdp, ep, tp = (draw(st.integers(1, most)) for most in (2, 5, 3, 4))
    outer = _StridedShard(0, split_factor=ep * tp) if ep * tp > 1 else Shard(0)
    return Placed(shape, "int64", Mesh((replicas, fsdp, ep, tp)), (Replicate(), outer, Shard(0), Shard(0)), "fsdp2")


@given(st.one_of(strided(), fsdp_over_tp()))
def test_each_rank_holds_what_torch_gives_it(placed: Placed) -> None:
    """By the elements themselves: each piece is where it says, and nothing else is in the local tensor."""
    source = describe({"w": placed}, len(list(itertools.product(*map(range, placed.mesh.shape)))))
    tensor = torch.arange(torch.Size(placed.shape).numel()).view(placed.shape)
    places = list(itertools.product(*map(range, placed.mesh.shape)))
    for rank, (local, place) in enumerate(zip(shards(tensor, placed), places, strict=True)):
        rebuilt = torch.full_like(local, -1)
        for piece in source.ranks[rank].tensors.get("w", ()):
            rebuilt[piece.local(piece.box)] = tensor[piece.box.index()]
        assert torch.equal(rebuilt, local)
        if placed.by == "distribute_tensor":
            shape, offset = _compute_local_shape_and_global_offset(
                placed.shape, placed.mesh.shape, list(place), placed.placements
            )
            assert shape == tuple(local.shape)
            if local.numel():
                assert offset == source.ranks[rank].tensors["w"][0].box.start


def test_a_strided_shard_is_several_pieces() -> None:
    held = pieces("w", (8, 2), (2, 2), (1, 0), (_StridedShard(0, split_factor=2), Replicate()), "distribute_tensor")
    assert held == (Piece(Box((2, 0), (4, 2)), (0, 0)), Piece(Box((6, 0), (8, 2)), (2, 0)))


@pytest.mark.parametrize(
    ("size", "mesh", "placements", "said"),
    [
        (8, (2,), (Partial(),), r"^w: is a partial sum"),
        (8, (2,), (Shard(1),), r"^w: has no dimension to shard"),
        (8, (2, 2), (Shard(0),), r"^w: 1 placements for a mesh of 2 dimensions"),
        (33, (8, 4), (_StridedShard(0, split_factor=4), Shard(0)), r"^w: dimension 0 of size 33.*say by= one of fsdp2"),
    ],
)
def test_what_cannot_be_said_is_refused(size: int, mesh: tuple[int, ...], placements: tuple, said: str) -> None:
    with pytest.raises(UserError, match=said):
        describe({"w": Placed((size,), "float32", Mesh(mesh), placements)}, 64)


@pytest.mark.parametrize("ranks", [(0,), (0, 0), (0, 9)])
def test_a_mesh_has_ranks_that_there_are(ranks: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"^w: "):
        describe({"w": Placed((4,), "float32", Mesh((2,), ranks), (Shard(0),))}, 8)


def test_equal_layouts_share_their_pieces() -> None:
    one = Placed((64, 64), "bfloat16", Mesh((4,)), (Shard(0),))
    rank = describe({"a": one, "b": one}, 4).ranks[3]
    assert rank.tensors["a"] is rank.tensors["b"]


def test_more_ranks_than_rows() -> None:
    source = describe({"w": Placed((5, 2), "float32", Mesh((4,)), (Shard(0),))}, 4)
    assert ["w" in rank.tensors for rank in source.ranks] == [True, True, True, False]  # 2, 2, 1, 0 as torch.chunk


def held(**shapes: tuple[int, ...]) -> SourceLayout:
    return whole([TensorSpec(name, shape, "float32") for name, shape in shapes.items()])


def test_ranks_that_hold_another_model_are_refused() -> None:
    with pytest.raises(UserError, match=r"^w: ranks 0 and 2 differ: float32 \[4\] and float32 \[5\]"):
        join([held(w=(4,)), held(), held(w=(5,))])


def test_stages_join_and_what_is_tied_on_one_is_tied_on_all() -> None:
    tied = SourceLayout(held(embed=(4,)).specs, held(embed=(4,)).ranks, {"head": "embed"})
    joined = join([tied, held(head=(4,), norm=(2,))])
    assert set(joined.specs) == {"embed", "norm"} and joined.aliases == {"head": "embed"}
    assert [set(rank.tensors) for rank in joined.ranks] == [{"embed"}, {"norm"}]
    assert joined.ranks[0] == RankLayout({"embed": (Piece(Box((0,), (4,)), (0,)),)})
