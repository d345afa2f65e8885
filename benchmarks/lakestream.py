"""Streams against plain Lance append and Redis Streams, in one run on one machine.

    python -m benchmarks.lakestream                    # everything, about ten minutes
    python -m benchmarks.lakestream --only paced --store s3

throughput  producers in processes of their own append 2,500 rows a commit as fast as they can, round by round
            each system in turn; medians over the rounds. Plain Lance is the quickest way to append that Lance
            offers: fragments staged and committed on a handle that is kept. Redis gets each row as an XADD, a
            commit as one transaction (MULTI), without a log on disk and with `appendfsync always`; and, as
            `batches`, all rows of a commit in one entry. It is on a local disk, whatever the store.
paced       four producers, one commit a second each.
history     recovery (open, register, read the cursor) and the tail of one commit after 10 and 5,000 commits,
            with maintenance on.

Rows are {producer, seq, text of 100 characters}. S3 is SeaweedFS on this machine; it shares the processors.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from posttrain.lakestream import Policy, Stream
from tests.lakestream.stores import Store, seaweed

ROWS = 2500
SCHEMA = pa.schema([("producer", pa.string()), ("seq", pa.int64()), ("text", pa.string())])


def table(name: str, first: int, rows: int = ROWS) -> pa.Table:
    return pa.table([[name] * rows, range(first, first + rows), [f"{i:0100d}" for i in range(rows)]], schema=SCHEMA)


def lakestream(uri: str, options: dict[str, str], name: str) -> Callable[[int], None]:
    producer = Stream.open(uri, storage_options=options or None).producer(name)
    batch = table(name, 0)
    return lambda number: producer.append(batch, number + 1) and None


def plain_lance(uri: str, options: dict[str, str], name: str) -> Callable[[int], None]:
    handle, batch = [lance.dataset(uri, storage_options=options or None)], table(name, 0)

    def append(_: int) -> None:
        staged = write_fragments(batch, handle[0], mode="append")
        operation = LanceOperation.Append(staged)
        # of Lance's own twenty retries an append beside a quick one needs all, at times, and then fails
        handle[0] = LanceDataset.commit(handle[0], operation, read_version=handle[0].version, max_retries=1000)

    return append


def redis_streams(uri: str, options: dict[str, str], name: str) -> Callable[[int], None]:
    import redis

    client, rows = redis.Redis(unix_socket_path=uri), table(name, 0).to_pylist()

    def append(number: int) -> None:
        with client.pipeline(transaction=True) as transaction:
            for row in rows:
                transaction.xadd("stream", row)
            transaction.set(f"cursor/{name}", number)
            transaction.execute()

    return append


def redis_batches(uri: str, options: dict[str, str], name: str) -> Callable[[int], None]:
    """One entry for a commit's rows, as Arrow IPC: quick, and no row can be addressed or filtered."""
    import redis

    client, batch = redis.Redis(unix_socket_path=uri), table(name, 0)

    def append(number: int) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as out:
            out.write_table(batch)
        with client.pipeline(transaction=True) as transaction:
            transaction.xadd("stream", {"rows": sink.getvalue().to_pybytes()})
            transaction.set(f"cursor/{name}", number)
            transaction.execute()

    return append


SYSTEMS = {
    "lakestream": lakestream,
    "plain Lance": plain_lance,
    "Redis": redis_streams,
    "Redis fsync": redis_streams,
    "Redis fsync, batches": redis_batches,
}


@dataclass
class Measured:
    """Latencies of all commits in seconds, and commits a second over all producers."""

    latencies: list[float]
    rate: float

    def quantile(self, q: float) -> float:
        return sorted(self.latencies)[min(len(self.latencies) - 1, int(q * len(self.latencies)))]


def work(
    system: str, uri: str, options: dict[str, str], name: str, seconds: float, pace: float, ready: Any, results: Any
) -> None:
    append = SYSTEMS[system](uri, options, name)
    append(0)
    ready.wait()
    latencies, began = [], time.monotonic()
    number, due = 1, began
    while (now := time.monotonic()) - began < seconds:
        if now < due:
            time.sleep(due - now)
        due += pace
        started = time.monotonic()
        append(number)
        latencies.append(time.monotonic() - started)
        number += 1
    results.put((latencies, time.monotonic() - began))


@cache
def processes() -> BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posttrain.lakestream", "tests.lakestream.stores"])
    return context


def measure(
    system: str, uri: str, options: dict[str, str], producers: int, seconds: float, pace: float = 0.0
) -> Measured:
    context = processes()
    ready, results = context.Barrier(producers), context.Queue()
    workers = [
        context.Process(target=work, args=(system, uri, options, f"p{i}", seconds, pace, ready, results))
        for i in range(producers)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=seconds * 4 + 120) for _ in workers]
    for worker in workers:
        worker.join()
    return Measured([x for each, _ in found for x in each], sum(len(each) / took for each, took in found))


@dataclass
class Bar:
    """What a figure must reach, or must not exceed."""

    what: str
    value: float
    least: float = 0.0
    most: float = float("inf")

    @property
    def holds(self) -> bool:
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        bound = f"at least {self.least:g}" if self.least else f"at most {self.most:g}"
        return f"{'held' if self.holds else 'NOT HELD'}  {self.what}: {self.value:.3f} ({bound})"


FIGURES: list[Callable[[Measured], float]] = [lambda m: m.rate, lambda m: m.quantile(0.5), lambda m: m.quantile(0.99)]


@contextmanager
def redis_server(directory: Path, *, durable: bool) -> Iterator[str]:
    """A server without a log on disk, or with one that is synced before each answer; yields its socket."""
    directory.mkdir(parents=True)
    socket = str(directory / "socket")
    log = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    settings = ["--port", "0", "--unixsocket", socket, "--dir", str(directory), "--save", "", *log]
    server = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(socket):
            time.sleep(0.05)
        yield socket
    finally:
        server.terminate()
        server.wait()


@contextmanager
def target(system: str, store: Store, scratch: Path, name: str) -> Iterator[str]:
    """Something empty for `system` to append to; yields where it is."""
    if system.startswith("Redis"):
        with redis_server(scratch / f"redis-{name}", durable="fsync" in system) as socket:
            yield socket
        return
    uri = store.uri(name)
    if system == "lakestream":
        Stream.create(uri, SCHEMA, storage_options=store.options)
    else:
        lance.write_dataset(
            SCHEMA.empty_table(),
            uri,
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            storage_options=store.options,
        )
    yield uri
    if store.kind == "local":
        shutil.rmtree(uri)


def redis_is_here() -> bool:
    if shutil.which("redis-server") and importlib.util.find_spec("redis"):
        return True
    print("Redis is left out: its server (apt-get install redis-server) or its Python client is not here")
    return False


def throughput(store: Store, scratch: Path, counts: Sequence[int], rounds: int, seconds: float) -> dict[int, float]:
    """Print the table; for each number of producers the ratio of commits a second to plain Lance's."""
    here = redis_is_here()
    systems = [system for system in SYSTEMS if here or not system.startswith("Redis")]
    print(f"\n{store.kind}: {ROWS} rows a commit, {rounds} rounds of {seconds:g} s; on the right the stream's figures")
    print(f"{'':>65}  divided by this one's")
    heads = f"{'producers':>9}  {'system':<21} {'commits/s':>9} {'rows/s':>9} {'p50 ms':>7} {'p99 ms':>7}"
    print(f"{heads}   rate   p50   p99")
    ratios = {}
    for producers in counts:
        found: dict[str, list[Measured]] = {system: [] for system in systems}
        for round_ in range(rounds):
            for system in systems if round_ % 2 == 0 else reversed(systems):
                with target(system, store, scratch, f"{producers}-{round_}-{len(system)}") as uri:
                    found[system].append(measure(system, uri, store.options or {}, producers, seconds))
        for system in systems:
            rate, p50, p99 = (statistics.median(figure(m) for m in found[system]) for figure in FIGURES)
            shown = f"{rate:>9.1f} {rate * ROWS:>9.0f} {p50 * 1e3:>7.1f} {p99 * 1e3:>7.1f}"
            if system != "lakestream":
                to_it = [compared(found["lakestream"], found[system], figure) for figure in FIGURES]
                shown += "  " + " ".join(f"{ratio:>5.2f}" for ratio in to_it)
            print(f"{producers:>9}  {system:<21} {shown}", flush=True)
        ratios[producers] = compared(found["lakestream"], found["plain Lance"], FIGURES[0])
    return ratios


def compared(mine: Sequence[Measured], other: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    """The median over the rounds of the ratio of a figure, so that what both suffer in a round is in neither."""
    return statistics.median(figure(a) / figure(b) for a, b in zip(mine, other, strict=True))


def paced(store: Store, scratch: Path, seconds: float) -> float:
    """Print the table; the stream's 99th percentile in seconds."""
    print(f"\n{store.kind}: 4 producers, one commit of {ROWS} rows a second each, {seconds:g} s")
    p99 = float("nan")
    for system in ("lakestream", "plain Lance"):
        with target(system, store, scratch, f"paced-{len(system)}") as uri:
            found = measure(system, uri, store.options or {}, 4, seconds, pace=1.0)
        print(f"{system:<21} p50 {found.quantile(0.5) * 1e3:.1f} ms, p99 {found.quantile(0.99) * 1e3:.1f} ms")
        p99 = found.quantile(0.99) if system == "lakestream" else p99
    return p99


class Line:
    """A stream with `length` commits behind it and a consumer that has read them."""

    def __init__(self, store: Store, length: int, policy: Policy):
        self.uri, self.options, self.length, self.policy = store.uri(f"history-{length}"), store.options, length, policy
        self.stream, self.rows = Stream.create(self.uri, SCHEMA, storage_options=self.options), table("p", 0, 10)
        producer = self.stream.producer("p", upkeep=policy)
        for number in range(length):
            producer.append(self.rows, number + 1)
        self.consumer = self.stream.consumer(group=None, offset="end")

    def recover(self) -> float:
        """Seconds to open the stream, register and read the cursor; then one more commit is made."""
        started = time.monotonic()
        producer = Stream.open(self.uri, storage_options=self.options).producer("p")
        assert producer.cursor == self.length
        took = time.monotonic() - started
        self.length += 1
        producer.append(self.rows, self.length)
        return took

    def tail(self) -> float:
        """Seconds in which a consumer at the end reads one commit; then the stream is maintained where it is due."""
        started = time.monotonic()
        assert self.consumer.poll().num_rows == len(self.rows)
        took = time.monotonic() - started
        self.stream.maintain(self.policy, force=False)
        return took

    def look(self) -> float:
        """Seconds in which the store tells the newest version: Lance lists them, and a recovery does so three times."""
        dataset = lance.dataset(self.uri, storage_options=self.options)
        started = time.monotonic()
        assert dataset.latest_version > 0
        return time.monotonic() - started


def history(store: Store, lengths: Sequence[int], rounds: int = 40) -> float:
    """Print recovery and tail after few and after many commits, taken in turn; the worse median of the ratios.

    What a look at the store's list of versions takes is printed too, and not counted.
    """
    print(f"\n{store.kind}: after {lengths[0]} and {lengths[1]} commits, maintenance on")
    few, many = (Line(store, length, Policy(every_commits=50, keep_versions=0.0)) for length in lengths)
    taken = [[(line.recover(), line.tail(), line.look()) for line in (few, many)] for _ in range(rounds)]
    ratios = []
    for which, what in enumerate(("recovery", "tail of one commit", "a look at the list")):
        short, long = ([pair[line][which] for pair in taken] for line in (0, 1))
        ratio = statistics.median(b / a for a, b in zip(short, long, strict=True))
        times = f"{statistics.median(short) * 1e3:6.1f} ms, {statistics.median(long) * 1e3:6.1f} ms"
        print(f"{what:<20} {times}: ratio {ratio:.2f}")
        ratios.append(ratio)
    return max(ratios[:2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["throughput", "paced", "history"])
    parser.add_argument("--store", choices=["local", "s3"])
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--history", type=int, nargs=2, default=[10, 5000], metavar="COMMITS")
    given = parser.parse_args()
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="lakestream-") as directory:
        scratch = Path(directory)
        (scratch / "s3").mkdir()
        with seaweed(scratch / "s3") as s3:
            for store in (Store("local", str(scratch / "local")), s3):
                if given.store not in (None, store.kind):
                    continue
                if given.only in (None, "throughput"):
                    ratios = throughput(store, scratch, given.producers, given.rounds, given.seconds)
                    if 4 in ratios:
                        bars.append(Bar(f"{store.kind}: commits/s to plain Lance's, 4 producers", ratios[4], least=0.7))
                if given.only in (None, "paced"):
                    p99 = paced(store, scratch, given.seconds * 6)
                    bars.append(Bar(f"{store.kind}: p99 in seconds at one commit a second each", p99, most=0.25))
                if given.only in (None, "history"):
                    few, many = given.history
                    worst = history(store, given.history)
                    bars.append(Bar(f"{store.kind}: time after {many} commits to that after {few}", worst, most=1.5))
    print()
    for bar in bars:
        print(bar)
    sys.exit(not all(bar.holds for bar in bars))


if __name__ == "__main__":
    main()
