"""Etha against gather and broadcast, against saving and loading safetensors, and against a plain copy, in one run.

    python benchmarks/etha.py [--repeats 5] [--only dense:4-4]

The same processes on this host do all of it: source ranks that hold FSDP shards, destination ranks that want tensor
parallel ones, in the same dtype. Times are from when the first begins until the last destination has all of its
bytes, the median of the repeats (fewer where they take long), after one that is not counted
unless it takes as long as all of them may.

etha        `Publisher.push` over shared memory until the version is decided: with the coordinator's state on disk
broadcast   per tensor: all_gather among the sources, broadcast from one of them, each destination keeps its part (gloo)
safetensors each source writes its shards into a file, each destination reads its parts by slices
copy        as many bytes from each source to each destination, in one piece, into memory that both have mapped

`extra` is by how much a source's and a destination's resident memory grew while it went on, at most. What stays from
push to push is not in it: Etha's staging, the destination's shard, as large as the buffers of the other ways.

Bars, on two cores: at 4 to 4 ranks 2 times faster than broadcast, and 3 times with small tensors; 0.8 of the copy. Ends
with 1 where one is not held.
"""

from __future__ import annotations

import argparse
import mmap
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import Shard

from posttrain.etha import formats
from posttrain.etha.coordinator.client import EthaClient
from posttrain.etha.coordinator.service import create_app
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.layout import Mesh, Placed, SourceLayout, describe
from posttrain.etha.plan import Plan, plan
from posttrain.etha.publisher import Publisher
from posttrain.etha.receiver import Receiver
from posttrain.etha.slices import Box, Want
from posttrain.etha.topology import one_host
from posttrain.service import serve

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torch.distributed.tensor",
        "posttrain.etha.coordinator.service",
        "posttrain.etha.publisher",
        "posttrain.etha.receiver",
        "posttrain.etha.transports.shm",
    ]
)
RANKS = ((1, 1), (4, 4), (4, 2), (2, 4))
BUCKET = CoordinatorSettings().bucket_bytes
BARS = {"dense": 2.0, "moe": 2.0, "small": 3.0}
COPY_BAR = 0.8
LONG_ENOUGH = 15.0  # seconds of repeats
Cut = dict[str, tuple[tuple[int, ...], int | None]]  # name -> shape, the dimension that tensor parallelism cuts


def dense(layers: int = 10, width: int = 2048, inner: int = 5632, words: int = 32000) -> Cut:
    found: Cut = {"embed": ((words, width), 0)}
    for layer in range(layers):
        for name in ("q", "k", "v"):
            found[f"{layer}.{name}"] = ((width, width), 0)
        found[f"{layer}.o"] = ((width, width), 1)
        found |= {f"{layer}.gate": ((inner, width), 0), f"{layer}.up": ((inner, width), 0)}
        found |= {f"{layer}.down": ((width, inner), 1), f"{layer}.norm": ((width,), None)}
    return found


def moe(layers: int = 4, width: int = 1024, inner: int = 512, experts: int = 64) -> Cut:
    found: Cut = {}
    for layer in range(layers):
        for name in ("q", "k", "v"):
            found[f"{layer}.{name}"] = ((width, width), 0)
        for expert in range(experts):
            found |= {f"{layer}.{expert}.{name}": ((inner, width), 0) for name in ("gate", "up")}
            found[f"{layer}.{expert}.down"] = ((width, inner), 1)
        found |= {f"{layer}.o": ((width, width), 1), f"{layer}.norm": ((width,), None)}
    return found


def small(count: int = 10_000, size: int = 2048) -> Cut:
    return {f"t{number}": ((size,), 0) for number in range(count)}


SHAPES: dict[str, Callable[[], Cut]] = {"dense": dense, "moe": moe, "small": small}


@dataclass
class Case:
    """`bytes` is what each source has for each destination, by the plan."""

    cut: Cut
    sources: int
    destinations: int
    coordinator: str
    rendezvous: int  # port
    directory: str

    def layout(self) -> SourceLayout:
        mesh = Mesh((self.sources,))
        return describe(
            {name: Placed(shape, "bfloat16", mesh, (Shard(0),)) for name, (shape, _) in self.cut.items()}, self.sources
        )

    def wants(self, rank: int) -> tuple[Want, ...]:
        found = []
        for name, (shape, cut) in self.cut.items():
            start, stop = [0] * len(shape), list(shape)
            if cut is not None:
                size = shape[cut] // self.destinations
                start[cut], stop[cut] = rank * size, (rank + 1) * size
            found.append(Want(name, Box(tuple(start), tuple(stop)), "bfloat16"))
        return tuple(found)

    def plan(self) -> Plan:
        wants = [self.wants(rank) for rank in range(self.destinations)]
        return plan(
            self.layout(), wants, topology=one_host(self.sources, self.destinations), bucket_bytes=BUCKET,
            ways=("direct",),
        )  # fmt: skip

    def pairs(self) -> dict[tuple[int, int], int]:
        """Bytes from each source to each destination."""
        found = {(s, d): 0 for s in range(self.sources) for d in range(self.destinations)}
        for bucket in self.plan().buckets:
            for destination in bucket.destinations:
                found[bucket.source, destination] += bucket.nbytes
        return found


class Source:
    """One source rank; each method is one of the ways, and returns once it is through."""

    def __init__(self, case: Case, rank: int, _: Connection, maps: Sequence[int]):
        self.case, self.rank = case, rank
        self.layout = case.layout()
        own = self.layout.ranks[rank].tensors
        self.tensors = {name: torch.randn(its[0].box.shape).bfloat16() for name, its in own.items()}
        group(case, rank)
        self.pairs = case.pairs()
        most = max(self.pairs[rank, d] for d in range(case.destinations))
        self.bytes = torch.randint(0, 255, (max(most, 1),), dtype=torch.uint8)
        self.maps = {d: mapped(file, self.pairs[rank, d]) for d, file in enumerate(maps)}
        alone = SourceLayout(self.layout.specs, (self.layout.ranks[rank],))
        self.publisher = Publisher(case.coordinator, alone, self.tensors, rank=rank, ranks=case.sources)
        self.publisher.start()
        self.version = 0

    def etha(self) -> None:
        self.version += 1
        self.publisher.push(self.version, timeout=300)

    def broadcast(self) -> None:
        own = self.layout.ranks[self.rank].tensors
        for name, (shape, _) in self.case.cut.items():
            full = torch.empty(shape, dtype=torch.bfloat16)
            if self.case.sources == 1:
                full = self.tensors[name]
            else:
                parts = list(full.split(own[name][0].box.shape[0]))
                dist.all_gather(parts, self.tensors[name], group=GROUPS["sources"])
            if self.rank == 0:
                dist.broadcast(full, 0, group=GROUPS["served"])

    def safetensors(self) -> None:
        save_file(self.tensors, f"{self.case.directory}/{self.rank}.safetensors.part")
        os.replace(f"{self.case.directory}/{self.rank}.safetensors.part", self.file(self.rank))
        dist.barrier(group=GROUPS["all"])

    def file(self, rank: int) -> str:
        return f"{self.case.directory}/{rank}.safetensors"

    def copy(self) -> None:
        for target in self.maps.values():
            target.copy_(self.bytes[: len(target)])
        dist.barrier(group=GROUPS["all"])


class Destination:
    def __init__(self, case: Case, rank: int, _: Connection, maps: Sequence[int]):
        self.case, self.rank = case, rank
        self.layout, self.wants = case.layout(), case.wants(rank)
        self.buffers = {want: torch.zeros(want.box.shape, dtype=torch.bfloat16) for want in self.wants}
        self.by_name = {want.name: want for want in self.wants}
        group(case, case.sources + rank)
        self.receiver = Receiver(case.coordinator, replica="a", rank=rank, ranks=case.destinations, wants=self.wants)
        self.receiver.start()

    def etha(self) -> None:
        pass  # in the receiver's threads

    def broadcast(self) -> None:
        for name, (shape, _) in self.case.cut.items():
            full = torch.empty(shape, dtype=torch.bfloat16)
            dist.broadcast(full, 0, group=GROUPS["served"])
            want = self.by_name[name]
            self.buffers[want].copy_(full[want.box.index()])

    def safetensors(self) -> None:
        dist.barrier(group=GROUPS["all"])
        for rank, held in enumerate(self.layout.ranks):
            with safe_open(f"{self.case.directory}/{rank}.safetensors", "pt") as file:
                for name, (piece,) in held.tensors.items():
                    want = self.by_name[name]
                    both = piece.box.meet(want.box)
                    if both is not None:
                        part = file.get_slice(name)[both.within(piece.box).index()]
                        self.buffers[want][both.within(want.box).index()] = part

    def copy(self) -> None:
        dist.barrier(group=GROUPS["all"])


GROUPS: dict[str, Any] = {}


def group(case: Case, rank: int) -> None:
    count = case.sources + case.destinations
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{case.rendezvous}", rank=rank, world_size=count)
    GROUPS["sources"] = dist.new_group(list(range(case.sources)))
    GROUPS["served"] = dist.new_group([0, *range(case.sources, count)])
    GROUPS["all"] = dist.group.WORLD


def mapped(file: int, nbytes: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, max(nbytes, 1)), dtype=torch.uint8)[:nbytes]


def act(kind: type, orders: Connection, case: Case, rank: int, count: int) -> None:
    torch.set_num_threads(1)
    maps = [reduction.recv_handle(orders) for _ in range(count)]
    actor = kind(case, rank, orders, maps)
    orders.send("ready")
    while (what := orders.recv()) != "end":
        before = memory()
        began = time.monotonic()
        getattr(actor, what)()
        ended = time.monotonic()
        orders.send((began, ended, peak() - before))
    os._exit(0)


def memory() -> int:
    """Resident bytes now; from here on `peak` counts."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM")


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def coordinate(database: str, port: int, bucket_bytes: int) -> None:
    app = create_app(CoordinatorSettings(database=database, bucket_bytes=bucket_bytes))
    serve(app, host="127.0.0.1", port=port, on_stop=app.state.server.close_waits, field="port")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Measured:
    seconds: float
    extra: tuple[int, int]  # of a source, of a destination


def measure(case: Case, port: int, repeats: int) -> dict[str, Measured]:
    coordinator = CONTEXT.Process(target=coordinate, args=(f"{case.directory}/etha.db", port, BUCKET), daemon=True)
    coordinator.start()
    with EthaClient(case.coordinator) as client:
        client.wait_ready(120)
    actors, pairs = [], case.pairs()
    files = {pair: os.memfd_create("copy") for pair in pairs}
    for pair, file in files.items():
        os.posix_fallocate(file, 0, max(pairs[pair], 1))
    for number in range(case.sources + case.destinations):
        source = number < case.sources
        ours, theirs = CONTEXT.Pipe()
        rank = number if source else number - case.sources
        count = case.destinations if source else 0
        process = CONTEXT.Process(
            target=act, args=(Source if source else Destination, theirs, case, rank, count), daemon=True
        )
        process.start()
        for d in range(count):
            reduction.send_handle(ours, files[rank, d], process.pid)
        actors.append((process, ours))
    try:
        for _, orders in actors:
            assert orders.poll(300) and orders.recv() == "ready"
        found = {}
        for way in ("copy", "etha", "broadcast", "safetensors"):
            runs, began = [], time.monotonic()
            while len(runs) <= repeats and time.monotonic() - began < LONG_ENOUGH:
                runs.append(once(way, [orders for _, orders in actors], case.sources))
            runs = runs[1:] or runs
            found[way] = Measured(
                statistics.median(run.seconds for run in runs),
                (max(run.extra[0] for run in runs), max(run.extra[1] for run in runs)),
            )
        return found
    finally:
        for process, _ in actors:
            process.kill()
            process.join()
        coordinator.kill()
        coordinator.join()
        for file in files.values():
            os.close(file)


def once(way: str, orders: Sequence[Connection], sources: int) -> Measured:
    for one in orders:
        one.send(way)
    said = [one.recv() for one in orders]
    counted = said[:sources] if way == "etha" else said
    seconds = max(ended for _, ended, _ in counted) - min(began for began, _, _ in said)
    return Measured(seconds, (max(s[2] for s in said[:sources]), max(s[2] for s in said[sources:])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", metavar="SHAPES:FROM-TO", help="one case, as in dense:4-4")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failed = []
    print(f"{'case':12}{'MB':>7}{'etha':>9}{'broadcast':>11}{'safetens.':>11}{'copy':>9}{'of copy':>9}   extra MB")
    for name, shapes in SHAPES.items():
        for sources, destinations in RANKS:
            label = f"{name}:{sources}-{destinations}"
            if arguments.only not in ("", label):
                continue
            with tempfile.TemporaryDirectory() as directory:
                port = free_port()
                case = Case(shapes(), sources, destinations, f"http://127.0.0.1:{port}", free_port(), directory)
                found = measure(case, port, arguments.repeats)
            failed += report(label, name, case, found)
    print("held" if not failed else f"NOT HELD: {'; '.join(failed)}")
    sys.exit(bool(failed))


def report(label: str, name: str, case: Case, found: dict[str, Measured]) -> list[str]:
    """A line of the table; which bars are not held."""
    etha, copy = found["etha"], found["copy"]
    moved = sum(formats.nbytes(w.format, w.box.shape) for rank in range(case.destinations) for w in case.wants(rank))
    times = {way: found[way].seconds / etha.seconds for way in ("broadcast", "safetensors")}
    share = copy.seconds / etha.seconds
    grew = {way: f"{m.extra[0] / 1e6:.0f}/{m.extra[1] / 1e6:.0f}" for way, m in found.items() if way != "copy"}
    extra = "  ".join(f"{way} {text}" for way, text in grew.items())
    print(
        f"{label:12}{moved / 1e6:7.0f}{etha.seconds:8.3f}s{times['broadcast']:10.1f}x{times['safetensors']:10.1f}x"
        f"{copy.seconds:8.3f}s{share:9.0%}   {extra}", flush=True,
    )  # fmt: skip
    failed = []
    if (case.sources, case.destinations) == (4, 4):
        if times["broadcast"] < BARS[name]:
            failed.append(f"{label}: {times['broadcast']:.1f} times broadcast, bar {BARS[name]:g}")
        if name != "small" and share < COPY_BAR:
            failed.append(f"{label}: {share:.0%} of the copy, bar {COPY_BAR:.0%}")
    return failed


if __name__ == "__main__":
    main()
