"""The simulator: closed forms where there are any, laws elsewhere."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from posttrain.etha import relay
from posttrain.etha.layout import Mesh, Placed, SourceLayout, describe
from posttrain.etha.plan import Plan, plan
from posttrain.etha.simulate import gather_and_broadcast, simulate
from posttrain.etha.slices import Box, Want
from posttrain.etha.topology import Host, Rates, Topology, cluster, one_host

FREE = Rates(math.inf, math.inf, math.inf, math.inf, 0.0, 0.0, 0.0)  # all but the ways between ranks


def sharded(ranks: int, tensors: int = 8, placement: object = None) -> SourceLayout:
    one = Placed((1024, 256), "float32", Mesh((ranks,)), (placement or Shard(0),))
    return describe({f"w{n}": one for n in range(tensors)}, ranks)


def everything(destinations: int, tensors: int = 8, format: str = "float32") -> list[tuple[Want, ...]]:
    return [tuple(Want(f"w{n}", Box.whole((1024, 256)), format) for n in range(tensors))] * destinations


MEBIBYTE = 1 << 20  # of one tensor


def free_cluster(sources: int, destinations: int, per_host: int = 1) -> Topology:
    return dataclasses.replace(cluster(sources, destinations, per_host), rates=FREE, latency=0.0)


def test_the_receivers_port_is_the_time_where_nothing_else_takes_any() -> None:
    topology = free_cluster(4, 1)
    done = simulate(plan(sharded(4), everything(1), topology=topology, bucket_bytes=MEBIBYTE))
    assert done.bottleneck == "destination 0 in" and done.nbytes == 8 * MEBIBYTE
    assert done.seconds == pytest.approx(8 * MEBIBYTE / topology.port)
    assert done.utilisation("source 2 out") == pytest.approx(1 / 4)


def test_one_bucket_passes_the_stages_one_after_the_other() -> None:
    rates = Rates(gather_bytes=1e9, encode_bytes=1e8, load_bytes=2e9, gather_each=1e-3, load_each=2e-3, bucket_each=0.0)
    topology = dataclasses.replace(cluster(1, 1, 1), rates=rates, latency=0.5)
    for format, rate, nbytes in (("float32", 1e9, MEBIBYTE), ("bfloat16", 1e8, MEBIBYTE // 2)):
        done = simulate(plan(sharded(1, 1), everything(1, 1, format), topology=topology))
        stages = nbytes / rate + 1e-3, nbytes / topology.port, nbytes / 2e9 + 2e-3
        assert done.seconds == pytest.approx(sum(stages) + 0.5)


def test_many_buckets_overlap() -> None:
    rates = Rates(gather_bytes=1e9, load_bytes=1e9, gather_each=0.0, load_each=0.0, bucket_each=0.0)
    topology = dataclasses.replace(cluster(1, 1, 1), rates=rates, port=1e9, latency=0.0)
    made = plan(sharded(1, 64), everything(1, 64), topology=topology, bucket_bytes=MEBIBYTE)
    assert simulate(made).seconds == pytest.approx((64 + 2) * MEBIBYTE / 1e9)


def test_ranks_share_the_processors_of_a_host() -> None:
    """Two workers for four sources and four destinations: all that is gathered and loaded, by two."""
    rates = dataclasses.replace(FREE, gather_bytes=1e9, load_bytes=1e9)
    topology = dataclasses.replace(one_host(4, 4, Host(local=math.inf, workers=2), rates), latency=0.0)
    made = plan(sharded(4, 64), everything(4, 64), topology=topology, bucket_bytes=MEBIBYTE // 4)
    copied = 64 * MEBIBYTE + 4 * 64 * MEBIBYTE  # each bucket is gathered once for all
    assert simulate(made).busy["host 0 work"] == pytest.approx(copied / 1e9 / 2)
    assert simulate(made).bottleneck == "host 0 work"


def test_a_source_that_writes_by_itself_does_so_for_each_destination() -> None:
    topology = dataclasses.replace(free_cluster(1, 4), rates=dataclasses.replace(FREE, send_bytes=1e9))
    done = simulate(plan(sharded(1), everything(4), topology=topology, bucket_bytes=MEBIBYTE, ways=("direct",)))
    assert done.busy["source 0 work"] == pytest.approx(4 * 8 * MEBIBYTE / 1e9)


def message_by_message(made: Plan) -> float:
    """Seconds until the last message is there, if ports do one thing at a time and sources keep to their order."""
    port, into = made.topology.port, [0.0] * len(made.topology.destinations)
    queues = [
        deque((bucket.nbytes, rank) for bucket in made.for_source(source) for rank in bucket.destinations)
        for source in range(len(made.topology.sources))
    ]
    free = [(0.0, source) for source, queue in enumerate(queues) if queue]
    while free:
        now, source = heapq.heappop(free)
        nbytes, rank = queues[source].popleft()
        into[rank] = max(now, into[rank]) + nbytes / port
        if queues[source]:
            heapq.heappush(free, (into[rank], source))
    return max(into)


def dense(tp: int, fsdp: int, replicas: int) -> tuple[SourceLayout, list[tuple[Want, ...]]]:
    """FSDP2 over TP to replicas with as much TP; every third tensor is whole everywhere."""
    mesh, both = Mesh((fsdp, tp)), (_StridedShard(0, split_factor=tp), Shard(0))
    cut = {f"w{n}": Placed((256, 64), "float32", mesh, both, "fsdp2") for n in range(40)}
    whole = {f"n{n}": Placed((64, 8), "float32", mesh, (Shard(0), Replicate())) for n in range(20)}
    rows = 256 // tp
    wants = [
        tuple(Want(name, Box((rows * rank, 0), (rows * rank + rows, 64)), "float32") for name in cut)
        + tuple(Want(name, Box.whole(one.shape), "float32") for name, one in whole.items())
        for rank in range(tp)
    ]
    return describe(cut | whole, fsdp * tp), wants * replicas


def experts(ep: int, fsdp: int, ranks: int, replicas: int) -> tuple[SourceLayout, list[tuple[Want, ...]]]:
    """Each expert on one group of FSDP and one rank of a replica, besides what is everywhere."""
    everywhere = Placed((1024, 8), "float32", Mesh((ep * fsdp,)), (Shard(0),))
    placed = {f"n{n}": everywhere for n in range(8)}
    wants = [[Want(name, Box.whole(one.shape), "float32") for name, one in placed.items()] for _ in range(ranks)]
    for expert in range(64):
        group = expert * ep // 64
        mesh = Mesh((fsdp,), tuple(range(group * fsdp, group * fsdp + fsdp)))
        placed[f"e{expert}"] = Placed((256, 64), "float32", mesh, (Shard(0),))
        wants[expert * ranks // 64].append(Want(f"e{expert}", Box.whole((256, 64)), "float32"))
    return describe(placed, ep * fsdp), [tuple(listed) for listed in wants] * replicas


@pytest.mark.parametrize(
    ("made", "most"),
    [(dense(4, 4, 4), 1.15), (dense(4, 8, 4), 1.15), (dense(4, 2, 8), 1.02), (experts(8, 4, 16, 2), 1.25)],
    ids=["as many", "more sources", "fewer sources", "experts"],
)
def test_the_order_keeps_all_ports_busy(made: tuple[SourceLayout, list[tuple[Want, ...]]], most: float) -> None:
    """What the simulator leaves out, queues, adds less than it is allowed to be wrong by."""
    source, wants = made
    topology = free_cluster(len(source.ranks), len(wants))
    planned = plan(source, wants, topology=topology, bucket_bytes=1 << 15, ways=("direct",))
    assert 1 <= message_by_message(planned) / simulate(planned).seconds * (1 + 1e-9) <= most


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.sampled_from(relay.WAYS), st.floats(1, 4), st.booleans()
)
def test_faster_machines_are_never_slower(
    sources: int, destinations: int, per_host: int, way: relay.Way, factor: float, replicated: bool
) -> None:
    slow = cluster(sources, destinations, per_host)
    layout = sharded(sources, 4, Replicate() if replicated else None)
    made = plan(layout, everything(destinations, 4), topology=slow, bucket_bytes=1 << 18, ways=(way,))
    before = simulate(made)
    assert before.seconds >= max(before.busy.values())
    hosts = tuple(
        dataclasses.replace(host, uplink=host.uplink * factor, local=host.local * factor) for host in slow.hosts
    )
    faster = [
        dataclasses.replace(slow, port=slow.port * factor),
        dataclasses.replace(slow, hosts=hosts),
        dataclasses.replace(slow, rates=dataclasses.replace(slow.rates, gather_bytes=slow.rates.gather_bytes * factor)),
        dataclasses.replace(slow, latency=slow.latency / factor),
    ]
    for topology in faster:
        assert simulate(made, topology).seconds <= before.seconds * (1 + 1e-9)


def test_a_few_sources_have_their_buckets_passed_on_and_many_do_not() -> None:
    wants = everything(16)
    few = plan(sharded(2), wants, topology=free_cluster(2, 16), bucket_bytes=1 << 16)
    assert few.way == "chain"  # each sends everything once, instead of the two eight times
    assert simulate(few).seconds < simulate(plan(
        sharded(2), wants, topology=free_cluster(2, 16), bucket_bytes=1 << 16, ways=("direct",)
    )).seconds / 4  # fmt: skip
    many = plan(sharded(16), wants, topology=free_cluster(16, 16), bucket_bytes=1 << 16)
    assert many.way == "direct"


def test_a_slow_uplink_is_crossed_once_for_a_host() -> None:
    host = Host(local=400e9, uplink=10e9)
    topology = dataclasses.replace(cluster(8, 8, 8, host), rates=FREE, latency=0.0)
    made = plan(sharded(8), everything(8), topology=topology)
    assert made.way == "hosts"
    assert made.link_bytes["host 1 in"] == 8 * MEBIBYTE


@pytest.mark.parametrize("way", relay.WAYS)
@given(st.integers(0, 6), st.lists(st.integers(0, 19), min_size=1, max_size=20, unique=True))
def test_each_destination_is_reached_once(way: relay.Way, source_host: int, members: list[int]) -> None:
    topology = cluster(20, 20, per_host=4)
    above = relay.parents(way, source_host, tuple(members), topology)
    known, depth = {relay.DIRECT}, 0
    waiting = dict(zip(members, above, strict=True))
    while waiting:
        depth += 1
        reached = {rank for rank, parent in waiting.items() if parent in known}
        assert reached
        known |= reached
        waiting = {rank: parent for rank, parent in waiting.items() if rank not in reached}
    assert relay.depth(above, tuple(members)) == depth
    across = [
        (rank, parent)
        for rank, parent in zip(members, above, strict=True)
        if (source_host if parent == relay.DIRECT else topology.destinations[parent]) != topology.destinations[rank]
    ]
    hosts = {topology.destinations[rank] for rank in members} - {source_host}
    assert way == "direct" or len(across) == len(hosts)


def test_gathering_and_broadcasting_moves_whole_tensors() -> None:
    """Every rank but one gets everything; by the port of the one that sends, and of each that gets."""
    topology = free_cluster(4, 4)
    wants = [
        tuple(Want(f"w{n}", Box((256 * r, 0), (256 * r + 256, 256)), "float32") for n in range(8)) for r in range(4)
    ]
    done = gather_and_broadcast(sharded(4), wants, topology)
    assert done.nbytes == 8 * MEBIBYTE * (3 + 4)
    assert done.seconds == pytest.approx((1 + 3 / 4) * 8 * MEBIBYTE / topology.port)
    etha = simulate(plan(sharded(4), wants, topology=topology, bucket_bytes=1 << 16))
    assert done.seconds / etha.seconds == pytest.approx(7, rel=0.05)
