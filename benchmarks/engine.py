"""What the embedded engine costs, against a bare subprocess measured in the same run.

    python benchmarks/engine.py             overhead per pod, pods at once
    python benchmarks/engine.py --quick     fewer rounds

A pod is `true` in a container: from `start` to the moment that the engine knows it has Succeeded.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from posttrain.engine import isolation
from posttrain.engine.pods import PodRunner
from posttrain.engine.podspec import PodSpec

BAR_MS = 50.0  # for a pod with isolation, over a bare subprocess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 20 if parser.parse_args().quick else 100
    console = Console()
    with tempfile.TemporaryDirectory(prefix="posttrain-benchmark-") as scratch:
        drivers: list[isolation.Driver] = ["bubblewrap", "paths"]
        if isolation.choose().driver != "bubblewrap":
            console.print(f"no isolation here: {isolation.choose().reason}")
            drivers = ["paths"]
        console.print(overhead(Path(scratch), drivers, rounds))
        console.print(at_once(Path(scratch), drivers, 2 * rounds))


def overhead(scratch: Path, drivers: list[isolation.Driver], rounds: int) -> Table:
    """One after the other, peers taking turns so that what else the machine does meets them alike."""
    runners = {driver: PodRunner(scratch / driver, driver) for driver in drivers}
    tasks: dict[str, Callable[[int], None]] = {"bare subprocess": lambda _: bare()}
    for driver, runner in runners.items():
        tasks[f"pod, {driver}"] = lambda n, runner=runner: finish(runner, [start(runner, f"one-{n}")])
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            begun = time.perf_counter()
            task(number)
            if number:  # the first starts the zygote
                times[name].append(1000 * (time.perf_counter() - begun))
    for runner in runners.values():
        runner.close()
    table = Table(
        "", "least ms", "median ms", "p95 ms", "over bare, median ms", title=f"One pod after the other, {rounds} rounds"
    )
    peer = statistics.median(times["bare subprocess"])
    for name, found in times.items():
        over = statistics.median(found) - peer
        verdict = (
            "" if name == "bare subprocess" else f"{over:.1f} ({'within' if over < BAR_MS else 'ABOVE'} {BAR_MS:.0f})"
        )
        p95 = statistics.quantiles(found, n=20)[-1]
        table.add_row(name, f"{min(found):.1f}", f"{statistics.median(found):.1f}", f"{p95:.1f}", verdict)
    return table


def at_once(scratch: Path, drivers: list[isolation.Driver], count: int) -> Table:
    """Many at once: how long each takes of the machine."""
    table = Table("", "seconds", "ms each", "ratio", title=f"{count} at once")
    begun = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: bare(), range(count)))
    peer = time.perf_counter() - begun
    table.add_row("bare subprocess, 16 threads", f"{peer:.2f}", f"{1000 * peer / count:.1f}", "1")
    for driver in drivers:
        with PodRunner(scratch / f"many-{driver}", driver) as runner:
            finish(runner, [start(runner, "first")])
            begun = time.perf_counter()
            finish(runner, [start(runner, f"many-{n}") for n in range(count)])
            took = time.perf_counter() - begun
        table.add_row(f"pods, {driver}", f"{took:.2f}", f"{1000 * took / count:.1f}", f"{took / peer:.1f}")
    return table


def bare() -> None:
    subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def start(runner: PodRunner, id: str) -> PodSpec:
    container = {"name": "main", "image": "none", "command": ["true"]}
    spec = PodSpec(id=id, name=id, directory=str(runner.pods / id), ip="127.0.0.2", main=container)
    runner.start(spec)
    return spec


def finish(runner: PodRunner, specs: list[PodSpec]) -> None:
    waiting = {spec.id: spec for spec in specs}
    while waiting:
        for id in runner.wait(10) & waiting.keys():
            status = runner.status(waiting[id].directory)
            if status.ended:
                assert status.phase == "Succeeded", status
                del waiting[id]


if __name__ == "__main__":
    main()
