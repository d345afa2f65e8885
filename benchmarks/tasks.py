"""The TaskServer and the reward service, end to end over HTTP, each against a peer measured in the same run.

    python benchmarks/tasks.py [--tasks 5000]

Tasks a second: submitted, leased, worked by processes that do nothing, reported, waited for; the peer is a
`ProcessPoolExecutor` of as many processes doing nothing, which keeps no state. Verdicts: `exact` in batches and one at
a time, and the same question asked again; the peer is `score` in this process, without HTTP, index or isolation.
Bar, on two cores: 500 tasks a second. Ends with 1 where it is not held.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from posttrain.reward.api import Ask
from posttrain.reward.client import RewardClient
from posttrain.reward.score import score
from posttrain.rollout.tasks.api import NewTask
from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.settings import DATABASE_VARIABLE
from posttrain.rollout.tasks.worker import Worker

ROOT = Path(__file__).resolve().parents[1]
PROCESSES, CONCURRENCY = 2, 100
RATE_BAR = 500.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--database", default="", help="a postgresql:// URL in place of SQLite")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    with tempfile.TemporaryDirectory() as scratch:
        rate = tasks(arguments.database or f"{scratch}/tasks.db", arguments.tasks)
        verdicts(Path(scratch), arguments.verdicts)
    print(f"{'held' if rate >= RATE_BAR else 'NOT HELD'}: {rate:.0f} tasks/s, bar {RATE_BAR:g}")
    sys.exit(rate < RATE_BAR)


def tasks(database: str, count: int) -> float:
    with ProcessPoolExecutor(PROCESSES) as pool:
        list(pool.map(nothing, range(100)))
        began = time.perf_counter()
        list(pool.map(nothing, range(count)))
        peer = count / (time.perf_counter() - began)
    with service("tasks", {DATABASE_VARIABLE: database}) as url, TaskClient(url) as client:
        client.wait_ready(120)
        workers = [subprocess.Popen([sys.executable, __file__, "--work", url], cwd=ROOT) for _ in range(PROCESSES)]
        try:
            run(client, 200)
            rate = run(client, count)
            alone = sorted(one(client) for _ in range(100))
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
    name = database.partition(":")[0] if "://" in database else "sqlite"
    print(f"tasks/s end to end ({name}, {PROCESSES} workers of {CONCURRENCY}): {rate:.0f}")
    print(f"  a pool of {PROCESSES} processes without a server: {peer:.0f}/s, ratio {rate / peer:.2f}")
    p50, p99 = statistics.median(alone) * 1e3, alone[98] * 1e3
    print(f"  one task alone, submitted to known: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return rate


def run(client: TaskClient, count: int) -> float:
    """Tasks a second from the first call to the last end."""
    began = time.perf_counter()
    submitted = client.submit([NewTask(kind="nothing", payload=n) for n in range(count)])
    ended = list(client.as_ended([task.id for task in submitted], timeout=600))
    assert len(ended) == count and all(task.state == "succeeded" for task in ended)
    return count / (time.perf_counter() - began)


def one(client: TaskClient) -> float:
    began = time.perf_counter()
    (task,) = client.submit([NewTask(kind="nothing", payload=1)])
    client.wait([task.id], 30)
    return time.perf_counter() - began


def verdicts(scratch: Path, count: int) -> None:
    asks = [
        Ask(task="t", trajectory=f"t/{n}", verifier="exact", answer=str(n % 7), completion=f"<answer>{n}</answer>")
        for n in range(count)
    ]
    began = time.perf_counter()
    for ask in asks:
        score("exact", ask.answer, "", ask.completion)
    peer = count / (time.perf_counter() - began)
    environment = {"POSTTRAIN_REWARD_DATABASE": str(scratch / "verdicts.db")}
    with service("reward", environment) as url, RewardClient(url) as client:
        client.wait_ready(120)
        client.verdict(asks[0])  # which starts the lane's process
        began = time.perf_counter()
        client.verdicts(asks)
        rate = count / (time.perf_counter() - began)
        began = time.perf_counter()
        client.verdicts(asks)
        known = count / (time.perf_counter() - began)
        alone = []
        for n in range(100):
            began = time.perf_counter()
            client.verdict(asks[0].model_copy(update={"completion": f"<answer>x{n}</answer>"}))
            alone.append(time.perf_counter() - began)
    alone.sort()
    print(f"verdicts/s, exact, in batches of 1000: {rate:.0f}, asked again: {known:.0f}")
    print(f"  `score` in this process, nothing kept: {peer:.0f}/s, ratio {rate / peer:.4f}")
    print(f"  one verdict alone: p50 {statistics.median(alone) * 1e3:.1f} ms, p99 {alone[98] * 1e3:.1f} ms")


@contextmanager
def service(name: str, environment: dict[str, str]) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "posttrain.cli", name, "serve", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def work(url: str) -> None:
    worker = Worker(TaskClient(url), ["nothing"], lambda job: job.lease.payload, concurrency=CONCURRENCY)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


def nothing(value: int) -> int:
    return value


if __name__ == "__main__":
    main()
