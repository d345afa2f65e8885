"""What a plan costs and what it is worth, on layouts that are on paper only: no tensor is made.

    python -m benchmarks.etha_plan                  all layouts, some minutes
    python -m benchmarks.etha_plan --only dense

`plan` is the time from layouts and wants to the table of buckets, choosing how buckets are passed on included: of the
one processor that it needs, and by the clock of this machine, which others may share. `memory` is the most that the
process had beyond what layouts and wants take.
The ratio is the simulator's: gathering every tensor and broadcasting it from one rank, on the same machines, over Etha.
Machines have 8 ranks each, with 50 GB/s a rank and 400 GB/s a host to others, and 200 GB/s a host inside.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from posttrain.etha.layout import Mesh, Placed, SourceLayout, describe
from posttrain.etha.plan import plan
from posttrain.etha.simulate import gather_and_broadcast, simulate
from posttrain.etha.slices import Box, Want
from posttrain.etha.topology import cluster

BAR_SECONDS = 60.0  # for the mixture of experts with 1,000 ranks on each side


@dataclass(frozen=True)
class Weight:
    """`cut` is the dimension in which tensor parallelism cuts it, None where every rank has all of it."""

    shape: tuple[int, ...]
    cut: int | None


def dense_70b() -> Iterator[tuple[str, Weight]]:
    """Llama 3 70B: 80 layers, 8,192 wide, 64 heads and 8 of keys and values."""
    yield "model.embed_tokens.weight", Weight((128256, 8192), 0)
    for layer in range(80):
        block = f"model.layers.{layer}"
        for name, rows in (("q", 8192), ("k", 1024), ("v", 1024)):
            yield f"{block}.self_attn.{name}_proj.weight", Weight((rows, 8192), 0)
        yield f"{block}.self_attn.o_proj.weight", Weight((8192, 8192), 1)
        yield f"{block}.mlp.gate_proj.weight", Weight((28672, 8192), 0)
        yield f"{block}.mlp.up_proj.weight", Weight((28672, 8192), 0)
        yield f"{block}.mlp.down_proj.weight", Weight((8192, 28672), 1)
        yield f"{block}.input_layernorm.weight", Weight((8192,), None)
        yield f"{block}.post_attention_layernorm.weight", Weight((8192,), None)
    yield "model.norm.weight", Weight((8192,), None)
    yield "lm_head.weight", Weight((128256, 8192), 0)


EXPERTS, MOE_LAYERS = 384, 61


def moe_1t() -> Iterator[tuple[str, Weight]]:
    """Of the shape of Kimi K2 (arXiv 2507.20534): 61 layers, 7,168 wide, MLA, 384 experts; without the experts."""
    yield "model.embed_tokens.weight", Weight((163840, 7168), 0)
    for layer in range(MOE_LAYERS):
        block = f"model.layers.{layer}"
        yield f"{block}.self_attn.q_a_proj.weight", Weight((1536, 7168), None)
        yield f"{block}.self_attn.q_b_proj.weight", Weight((12288, 1536), 0)
        yield f"{block}.self_attn.kv_a_proj_with_mqa.weight", Weight((576, 7168), None)
        yield f"{block}.self_attn.kv_b_proj.weight", Weight((16384, 512), 0)
        yield f"{block}.self_attn.o_proj.weight", Weight((7168, 8192), 1)
        for norm, width in (("q_a", 1536), ("kv_a", 512)):
            yield f"{block}.self_attn.{norm}_layernorm.weight", Weight((width,), None)
        for norm in ("input", "post_attention"):
            yield f"{block}.{norm}_layernorm.weight", Weight((7168,), None)
        inner, mlp = (2048, "mlp.shared_experts") if layer else (18432, "mlp")
        if layer:
            yield f"{block}.mlp.gate.weight", Weight((EXPERTS, 7168), None)
        for name, shape, cut in (
            ("gate", (inner, 7168), 0), ("up", (inner, 7168), 0), ("down", (7168, inner), 1),
        ):  # fmt: skip
            yield f"{block}.{mlp}.{name}_proj.weight", Weight(shape, cut)
    yield "model.norm.weight", Weight((7168,), None)
    yield "lm_head.weight", Weight((163840, 7168), 0)


def expert_weights(expert: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for layer in range(1, MOE_LAYERS):
        for name, shape in (("gate", (2048, 7168)), ("up", (2048, 7168)), ("down", (7168, 2048))):
            yield f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight", shape


def wanted(weight: Weight, name: str, rank: int, ranks: int) -> Want:
    box = Box.whole(weight.shape)
    if weight.cut is not None:
        part = weight.shape[weight.cut] // ranks
        start, stop = list(box.start), list(box.stop)
        start[weight.cut], stop[weight.cut] = rank * part, (rank + 1) * part
        box = Box(tuple(start), tuple(stop))
    return Want(name, box, "bfloat16")


def dense(fsdp: int, replicas: int, tp: int = 8) -> tuple[SourceLayout, list[tuple[Want, ...]]]:
    """FSDP2 over tensor parallelism of 8 to replicas with tensor parallelism of 8."""
    mesh, weights, placed = Mesh((fsdp, tp)), dict(dense_70b()), {}
    for name, weight in weights.items():
        inner = Replicate() if weight.cut is None else Shard(weight.cut)
        outer = _StridedShard(0, split_factor=tp) if weight.cut == 0 else Shard(0)
        placed[name] = Placed(weight.shape, "bfloat16", mesh, (outer, inner), "fsdp2")
    lists = [tuple(wanted(weight, name, rank, tp) for name, weight in weights.items()) for rank in range(tp)]
    return describe(placed, fsdp * tp), lists * replicas


def moe(ep: int, fsdp: int, replicas: int, ranks: int, tp: int = 8) -> tuple[SourceLayout, list[tuple[Want, ...]]]:
    """Experts parallel, each sharded by FSDP inside its group, the rest by FSDP over all ranks; to replicas of `ranks`.

    A replica spreads its experts over its ranks, and cuts attention by tensor parallelism in groups of 8.
    """
    world, weights, placed = ep * fsdp, dict(moe_1t()), {}
    for name, weight in weights.items():
        placed[name] = Placed(weight.shape, "bfloat16", Mesh((world,)), (Shard(0),))
    lists = [[wanted(weight, name, rank % tp, tp) for name, weight in weights.items()] for rank in range(ranks)]
    for expert in range(EXPERTS):
        group = expert * ep // EXPERTS
        mesh = Mesh((fsdp,), tuple(range(group * fsdp, (group + 1) * fsdp)))
        for name, shape in expert_weights(expert):
            placed[name] = Placed(shape, "bfloat16", mesh, (Shard(0),))
            lists[expert * ranks // EXPERTS].append(Want(name, Box.whole(shape), "bfloat16"))
    return describe(placed, world), [tuple(listed) for listed in lists] * replicas


LAYOUTS: dict[str, tuple[str, Callable[[], tuple[SourceLayout, list[tuple[Want, ...]]]]]] = {
    "dense": ("dense 70B\nFSDP 32 × TP 8\n→ 32 × TP 8", lambda: dense(32, 32)),
    "dense-few": ("dense 70B\nFSDP 4 × TP 8\n→ 32 × TP 8", lambda: dense(4, 32)),
    "moe": ("MoE 1T\nEP 64 × FSDP 16\n→ 32 × EP 32", lambda: moe(64, 16, 32, 32)),
    "moe-fine": ("MoE 1T\nEP 8 × FSDP 125\n→ 125 × EP 8", lambda: moe(8, 125, 125, 8)),
}


class Memory:
    """The most that this process has had resident beyond what it had at the start, sampled."""

    def __enter__(self) -> Memory:
        self.start, self.most, self.done = resident(), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.02):
            self.most = max(self.most, resident() - self.start)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure(make: Callable[[], tuple[SourceLayout, list[tuple[Want, ...]]]]) -> tuple[float, dict[str, str]]:
    source, wants = make()
    topology = cluster(len(source.ranks), len(wants))
    with Memory() as memory:
        start, worked = time.perf_counter(), time.process_time()
        made = plan(source, wants, topology=topology)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    simulated, baseline = simulate(made), gather_and_broadcast(source, wants, topology)
    groups = np.array([len(members) for members in made.table.groups])
    sent = np.bincount(made.table.source, weights=made.table.nbytes * groups[made.table.group])
    return worked, {
        "ranks": f"{len(source.ranks):,} → {len(wants):,}",
        "plan": f"{worked:.1f} s of the processor",
        "by the clock": f"{seconds:.1f} s",
        "memory": f"{memory.most / 2**20:,.0f} MiB",
        "transfers": f"{len(made.table.rows.name):,}",
        "buckets": f"{len(made.buckets):,}",
        "bytes moved": f"{simulated.nbytes / 1e12:.2f} TB",
        "way": made.way,
        "most of a source / mean": f"{sent.max() / sent.mean():.3f}",
        "simulated push": f"{simulated.seconds:.2f} s",
        "busiest": simulated.bottleneck,
        "gather and broadcast": f"{baseline.seconds:.2f} s",
        "ratio": f"{baseline.seconds / simulated.seconds:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=LAYOUTS, action="append")
    chosen = parser.parse_args().only or list(LAYOUTS)
    table, slowest, results = Table("", *(LAYOUTS[name][0] for name in chosen)), 0.0, []
    for name in chosen:
        seconds, result = measure(LAYOUTS[name][1])
        slowest = max(slowest, seconds)
        results.append(result)
    for row in results[0]:
        table.add_row(row, *(result[row] for result in results))
    Console().print(table)
    print(f"slowest plan {slowest:.1f} s of the processor; the bar is {BAR_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
