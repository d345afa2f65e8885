"""Plans: over a grid of layouts and any others, each byte that is wanted arrives once and no other is moved."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from posttrain.errors import UserError
from posttrain.etha import formats
from posttrain.etha.layout import Mesh, Piece, Placed, RankLayout, SourceLayout, TensorSpec, describe, whole
from posttrain.etha.plan import Plan, plan
from posttrain.etha.slices import Box, Want
from posttrain.etha.topology import Host, Topology, cluster, one_host
from tests.etha.layouts import TIED, served, trained
from tests.etha.moves import check, filled, locals_of, mesh_size

TRAINERS = [(f, t) for f in (1, 2, 3, 4, 8) for t in (1, 2, 4, 8) if f * t <= 16]


@pytest.mark.parametrize(("fsdp", "tp"), TRAINERS)
def test_a_trainers_shards_to_inference_ranks(fsdp: int, tp: int) -> None:
    """FSDP over TP, experts parallel, pipeline stages or replicas; fused, tied, biased, uneven, of several dtypes."""
    for stages, replicas in ((1, 1), (2, 1), (1, 2)):
        placed = trained(fsdp, tp, stages, replicas)
        ranks = stages * replicas * fsdp * tp
        source = describe(placed, ranks, TIED)
        tensors = {name: filled(one.shape, one.dtype, seed) for seed, (name, one) in enumerate(placed.items())}
        held = locals_of(tensors, placed, ranks)
        for number, serving in enumerate((1, 2, 4, 8)):
            if (number + fsdp + stages) % 2 and fsdp * tp > 4:
                continue  # of the larger ones every second
            wants = [served(serving, rank) for rank in range(serving)] * (2 if serving < 4 else 1)
            limit = (600, 5000, 1 << 20)[(number + fsdp) % 3]
            made = plan(source, wants, topology=cluster(ranks, len(wants), per_host=4), bucket_bytes=limit)
            check(made, source, tensors, held, wants, limit)


@st.composite
def placements(draw: st.DrawFn) -> tuple[Placed, str]:
    """A tensor somewhere on a mesh, and a format that it can be sent in."""
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    dims = st.integers(0, len(shape) - 1)
    dtype = draw(st.sampled_from([*formats.FLOATS, "int64", "bool"]))
    format = draw(st.sampled_from(list(formats.FLOATS) if dtype in formats.FLOATS else [dtype]))
    if len(shape) and len(mesh) == 2 and draw(st.booleans()):
        dim = draw(dims)
        return Placed(shape, dtype, Mesh(mesh), (_StridedShard(dim, split_factor=mesh[1]), Shard(dim)), "fsdp2"), format
    one = st.one_of(
        st.just(Replicate()),
        st.builds(Shard, dims),
        st.builds(lambda dim, factor: _StridedShard(dim, split_factor=factor), dims, st.integers(2, 4)),
    )
    its = tuple(draw(one) if shape else Replicate() for _ in mesh)
    return Placed(shape, dtype, Mesh(mesh), its, "distribute_tensor"), format


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    sides = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape]
    return Box(tuple(a for a, _ in sides), tuple(b for _, b in sides))


@given(st.data())
def test_any_layout_to_any_wants(data: st.DataObject) -> None:
    drawn = {f"t{n}": data.draw(placements()) for n in range(data.draw(st.integers(1, 4)))}
    placed = {name: one for name, (one, _) in drawn.items()}
    ranks = mesh_size(placed)
    source = describe(placed, ranks)
    destinations = data.draw(st.integers(1, 4))
    wants = [
        tuple(
            Want(name, data.draw(boxes(one.shape)), format)
            for name, (one, format) in drawn.items()
            for _ in range(data.draw(st.integers(0, 2)))
        )
        for _ in range(destinations)
    ]
    hosts = st.integers(0, 2)
    topology = Topology(
        (Host(),) * 3,
        tuple(data.draw(st.lists(hosts, min_size=ranks, max_size=ranks))),
        tuple(data.draw(st.lists(hosts, min_size=destinations, max_size=destinations))),
    )
    limit = data.draw(st.sampled_from([1, 16, 100, 1 << 20]))
    way = data.draw(st.sampled_from([("direct",), ("hosts",), ("chain",), ("binary",)]))
    made = plan(source, wants, topology=topology, bucket_bytes=limit, ways=way)
    tensors = {name: filled(one.shape, one.dtype) for name, one in placed.items()}
    distinct = [tuple(dict.fromkeys(listed)) for listed in wants]
    check(made, source, tensors, locals_of(tensors, placed, ranks), distinct, limit)


@given(st.data())
def test_holdings_that_overlap_in_part(data: st.DataObject) -> None:
    """No mesh makes them, but a checkpoint beside a trainer does: still each byte comes once."""
    shape = (6, 5)
    tensor = filled(shape, "float32")
    held = [Box.whole(shape), *data.draw(st.lists(boxes(shape), max_size=4))]
    layouts = tuple(RankLayout({"w": (Piece(box, (0, 0)),)}) for box in held)
    source = SourceLayout({"w": TensorSpec("w", shape, "float32")}, layouts)
    wants = [(Want("w", data.draw(boxes(shape)), "float32"),) for _ in range(3)]
    made = plan(source, wants, topology=one_host(len(held), 3), bucket_bytes=64)
    check(made, source, {"w": tensor}, [{"w": tensor[box.index()]} for box in held], wants, 64)


@pytest.mark.parametrize("format", [f"{d}/{s}" for d in formats.SCALED for s in formats.BLOCKS])
def test_formats_with_scales_are_converted_at_the_source(format: str) -> None:
    """Rows of 128 on each of 3 ranks, the last one short; wants cut along both dimensions."""
    placed = {"w": Placed((300, 256), "bfloat16", Mesh((3,)), (Shard(0),))}
    if "128" in format:
        placed = {"w": Placed((384, 200), "bfloat16", Mesh((3,)), (Shard(0),))}
    (shape,) = {one.shape for one in placed.values()}
    source, tensors = describe(placed, 3), {"w": filled(shape, "bfloat16")}
    columns = [Box((0, 0), (shape[0], 128)), Box((0, 128), shape), Box((128, 0), (256, shape[1])), Box.whole(shape)]
    wants = [(Want("w", box, format),) for box in columns]
    for limit in (2000, 1 << 20):
        made = plan(source, wants, topology=one_host(3, 4), bucket_bytes=limit)
        check(made, source, tensors, locals_of(tensors, placed, 3), wants, limit)


def small(placements: tuple, shape: tuple[int, ...] = (256, 256), ranks: int = 4) -> SourceLayout:
    return describe(
        {"a.weight": Placed(shape, "bfloat16", Mesh((ranks,)), placements)}, ranks, {"b.weight": "a.weight"}
    )


@pytest.mark.parametrize(
    ("placement", "name", "stop", "format", "said"),
    [
        (Shard(0), "a.wieght", (1, 1), "bfloat16", r"a.wieght: .*there is a.weight, b.weight"),
        (Shard(0), "a.weight", (257, 1), "bfloat16", r"a.weight: .*\[256, 256\].*\[0:257, 0:1\]"),
        (Shard(0), "a.weight", (1,), "bfloat16", r"a.weight: .*not inside"),
        (Shard(0), "b.weight", (1, 1), "int64", r"b.weight: .*bfloat16 does not convert.*int64"),
        (Shard(0), "a.weight", (256, 100), "int8/128x128", r"a.weight: .*want \[0:256, 0:100\] cuts.*128"),
        (Shard(0), "a.weight", (256, 256), "int8/128x128", r"a.weight: .*shards \[0:64, .* cuts blocks"),
        (Shard(1), "a.weight", (1, 128), "int8/channel", r"a.weight: no source holds all of \[0:1, 0:256\]"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    placement: Shard, name: str, stop: tuple[int, ...], format: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        plan(small((placement,)), [(Want(name, Box((0,) * len(stop), stop), format),)], topology=one_host(4, 1))


def test_a_missing_byte_is_named() -> None:
    whole_source = small((Shard(0),))
    lost = dataclasses.replace(whole_source, ranks=(*whole_source.ranks[:2], RankLayout({}), whole_source.ranks[3]))
    wants = [(Want("b.weight", Box((10, 20), (200, 30)), "bfloat16"),)]
    with pytest.raises(UserError, match=r"a.weight: no source holds a part.*\[128:192, 20:30\]"):
        plan(lost, wants, topology=one_host(4, 1))
    nobody = dataclasses.replace(whole_source, ranks=(RankLayout({}),) * 4)
    with pytest.raises(UserError, match=r"a.weight: .*no source holds any"):
        plan(nobody, wants, topology=one_host(4, 1))
    assert not len(plan(nobody, [()], topology=one_host(4, 1)).buckets)


def test_ranks_of_the_topology_are_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"topology.destinations: the topology has 2 ranks where there are 1"):
        plan(small((Shard(0),)), [()], topology=one_host(4, 2))
    with pytest.raises(UserError, match=r"destination rank 0 is on a host that is not given"):
        Topology((Host(),), (0,), (1,))


def many(count: int, placements: tuple, mesh: tuple[int, ...], shape: tuple[int, ...] = (64, 16)) -> SourceLayout:
    placed = {f"w{n}": Placed(shape, "float32", Mesh(mesh), placements) for n in range(count)}
    return describe(placed, math.prod(mesh))


def sent(made: Plan) -> np.ndarray:
    """Bytes that each source sends, one by one."""
    found = np.zeros(len(made.topology.sources))
    for bucket in made.buckets:
        found[bucket.source] += bucket.nbytes * len(bucket.destinations)
    return found


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 40))
def test_replicas_of_a_source_share_the_work(replicas: int, destinations: int, tensors: int) -> None:
    """The busiest has at most the largest share of one tensor more than the mean."""
    source = many(tensors, (Replicate(),), (replicas,))
    wants = [tuple(Want(f"w{n}", Box.whole((64, 16)), "float32") for n in range(tensors))] * destinations
    made = plan(source, wants, topology=cluster(replicas, destinations), bucket_bytes=4096, ways=("direct",))
    largest = 64 * 16 * 4 * -(-destinations // min(replicas, destinations))
    assert sent(made).max() <= sent(made).mean() + largest


def test_a_load_that_is_given_is_made_up_for() -> None:
    """Rank 0 alone holds one large tensor; of those that all hold it then sends less."""
    placed = {f"w{n}": Placed((64, 16), "float32", Mesh((4,)), (Replicate(),)) for n in range(64)}
    placed["large"] = Placed((640, 16), "float32", Mesh((1,)), (Replicate(),))
    wants = [tuple(Want(name, Box.whole(one.shape), "float32") for name, one in placed.items())]
    made = plan(describe(placed, 4), wants, topology=cluster(4, 1), bucket_bytes=4096)
    assert sent(made).max() <= sent(made).mean() + 64 * 16 * 4


def test_a_hosts_uplink_counts_as_much_as_ports() -> None:
    """Three replicas share a host whose uplink is no faster than a port: the fourth, alone on its host, sends half."""
    source = many(120, (Replicate(),), (4,))
    hosts = (Host(uplink=50e9), Host(uplink=50e9), Host())
    for kinds in (1, 4, 12):
        wants = tuple(Want(f"w{n}", Box((0, 0), (64, 4 + n % kinds)), "float32") for n in range(120))
        made = plan(source, [wants], topology=Topology(hosts, (0, 0, 0, 1), (2,), port=50e9))
        assert sent(made)[3] == pytest.approx(sent(made).sum() / 2, rel=0.05)
        assert sent(made)[:3] == pytest.approx(sent(made).sum() / 6, rel=0.1)


def test_the_own_host_comes_first() -> None:
    source = many(10, (Replicate(),), (4,))
    wants = [tuple(Want(f"w{n}", Box.whole((64, 16)), "float32") for n in range(10))] * 4
    topology = Topology((Host(),) * 3, (0, 0, 1, 2), (0, 1, 2, 2))
    made = plan(source, wants, topology=topology)
    assert all(
        topology.sources[bucket.source] == topology.destinations[rank]
        for bucket in made.buckets
        for rank in bucket.destinations
    )
    assert set(made.link_bytes) == {"host 0 local", "host 1 local", "host 2 local"}


def test_bytes_by_link_add_up() -> None:
    placed = trained(2, 2)
    wants = [served(2, rank) for rank in range(2)] * 2
    for way in ("direct", "chain"):
        topology = cluster(4, 4, per_host=2)
        made = plan(describe(placed, 4, TIED), wants, topology=topology, ways=(way,))
        links = made.link_bytes
        for rank, listed in enumerate(wants):
            own = sum(formats.nbytes(want.format, want.box.shape) for want in listed)
            assert links.get(f"destination {rank} in", 0) + (way == "chain") * own >= own
        hosts_in = sum(count for name, count in links.items() if name.startswith("host") and name.endswith("in"))
        assert hosts_in == sum(count for name, count in links.items() if name[0] in "sd" and name.endswith("out"))
        everything = hosts_in + sum(count for name, count in links.items() if name.endswith("local"))
        assert everything == sum(bucket.nbytes * len(bucket.destinations) for bucket in made.buckets)


def test_small_tensors_travel_together() -> None:
    """10,000 of 64 bytes from each of 4 ranks to each of 4: a bucket for each pair that has anything in common."""
    source = many(10_000, (Shard(0),), (4,), shape=(16, 4))
    wants = [tuple(Want(f"w{n}", Box((4 * r, 0), (4 * r + 4, 4)), "float32") for n in range(10_000)) for r in range(4)]
    made = plan(source, wants, topology=one_host(4, 4))
    assert [(b.source, b.destinations, len(b.transfers)) for b in made.buckets] == [(r, (r,), 10_000) for r in range(4)]


def test_no_destination_waits_for_another() -> None:
    """At any time each destination has had its share of what a source has sent, up to a bucket."""
    source = many(12, (Shard(0),), (2,), shape=(64, 96))
    wants = [
        tuple(Want(f"w{n}", Box((0, 32 * rank), (64, 32 * rank + 32)), "float32") for n in range(12 - 3 * rank))
        for rank in range(3)
    ]
    made = plan(source, wants, topology=one_host(2, 3), bucket_bytes=4096)
    for source_rank in range(2):
        order = [bucket.destinations[0] for bucket in made.for_source(source_rank)]
        for taken, rank in itertools.product(range(1, len(order)), range(3)):
            assert abs(order[:taken].count(rank) - order.count(rank) * taken / len(order)) <= 1.5


def test_sources_of_one_bucket_begin_at_different_destinations() -> None:
    source = many(8, (Shard(0),), (4,))
    wants = [tuple(Want(f"w{n}", Box.whole((64, 16)), "float32") for n in range(8))] * 4
    made = plan(source, wants, topology=cluster(4, 4), ways=("direct",))
    assert {made.for_source(rank)[0].destinations[0] for rank in range(4)} == {0, 1, 2, 3}


def test_equal_questions_have_equal_answers_and_others_do_not() -> None:
    def made(limit: int = 5000, format: str = "bfloat16", fsdp: int = 2) -> str:
        source = describe(trained(fsdp, 2), fsdp * 2, TIED)
        wants = [(*served(2, rank), Want("model.embed_tokens.weight", Box((0, 0), (2, 2)), format)) for rank in (0, 1)]
        topology = one_host(fsdp * 2, 2)
        return plan(source, wants, topology=topology, bucket_bytes=limit).digest

    assert made() == made()
    assert len({made(), made(limit=700), made(format="float32"), made(fsdp=1)}) == 4


def test_readers_of_a_checkpoint_share_it() -> None:
    specs = [TensorSpec(f"w{n}", (32, 32), "bfloat16") for n in range(8)]
    wants = [tuple(Want(spec.name, Box((0, 16 * r), (32, 16 * r + 16)), "bfloat16") for spec in specs) for r in (0, 1)]
    source = whole(specs, ranks=4)
    made = plan(source, wants, topology=cluster(4, 2))
    tensors = {spec.name: filled(spec.shape, spec.dtype) for spec in specs}
    check(made, source, tensors, [tensors] * 4, wants, 64 << 20)
    assert sent(made).max() == sent(made).min()
