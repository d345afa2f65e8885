"""What a sandbox costs, against a bare subprocess and nsjail measured in the same run.

    python benchmarks/sandbox.py                     some minutes
    python benchmarks/sandbox.py --quick             fewer rounds
    python benchmarks/sandbox.py --nsjail PATH       where nsjail is, if not on PATH

One round is a sandbox from nothing to nothing: it is started, runs a Python program to its end, is stopped, and
nothing of it is left. The same program runs as a bare subprocess, and under nsjail with namespaces of its own,
a read-only view of the same directories and a workspace in memory. Peers take turns round by round, so that what
else the machine does meets them alike. Bars, on two cores: 45 sandboxes a second, 25 ms for one alone (median);
ends with 1 where one of them is not held.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from posttrain.sandbox import Outcome, SandboxSpec
from posttrain.sandbox.bubblewrap import BubblewrapDriver
from posttrain.sandbox.pool import WarmPool

RATE_BAR, LATENCY_BAR_MS = 45.0, 25.0
PROGRAM = [sys.executable, "-I", "-S", "-c", "print(6 * 7)"]
SPEC = SandboxSpec(memory="512Mi", disk="64Mi")
Round = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Measured:
    seconds: list[float]
    total: float

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.total

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        ordered = sorted(self.seconds)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--nsjail", default=shutil.which("nsjail"), help="the program nsjail")
    options = parser.parse_args()
    console = Console()
    if options.nsjail is None:
        console.print("no nsjail here: install the package nsjail, or give --nsjail; measured without it")
    held = asyncio.run(_measure(console, options.nsjail, 30 if options.quick else 150))
    sys.exit(not held)


async def _measure(console: Console, nsjail: str | None, rounds: int) -> bool:
    """Whether the bars are held."""
    async with BubblewrapDriver() as driver, WarmPool(driver, size=4) as pool:

        async def sandboxed() -> None:
            async with driver.sandbox(SPEC) as sandbox:
                assert (await sandbox.exec(PROGRAM)).outcome is Outcome.succeeded

        async def warm() -> None:
            async with pool.sandbox(SPEC) as sandbox:
                assert (await sandbox.exec(PROGRAM)).outcome is Outcome.succeeded

        peers: dict[str, Round] = {"subprocess": _command(PROGRAM), "sandbox": sandboxed, "sandbox, warm pool": warm}
        if nsjail is not None:
            peers["nsjail"] = _command(_jailed(nsjail))
        for run in peers.values():
            await run()
        results = {}
        for concurrent in (1, 8, 64):
            results[concurrent] = await _rounds(peers, concurrent, max(rounds, 2 * concurrent))
            console.print(_table(results[concurrent], concurrent))
        console.print(await _calls(driver, rounds))
    alone, rate = results[1]["sandbox"].percentile(0.5), results[8]["sandbox"].rate
    bars = (
        (f"alone {alone:.1f} ms, bar {LATENCY_BAR_MS:g} ms", alone < LATENCY_BAR_MS),
        (f"8 at once {rate:.0f} a second, bar {RATE_BAR:g} a second", rate >= RATE_BAR),
    )
    for said, held in bars:
        console.print(f"{'held' if held else 'NOT HELD'}: {said}")
    return all(held for _, held in bars)


async def _rounds(peers: dict[str, Round], concurrent: int, rounds: int) -> dict[str, Measured]:
    """Batches of the peers in turn; each batch is `concurrent` at once, so a rate counts whole batches."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    totals = dict.fromkeys(peers, 0.0)

    async def timed(name: str, run: Round) -> None:
        begun = time.perf_counter()
        await run()
        seconds[name].append(time.perf_counter() - begun)

    for _ in range(max(1, rounds // concurrent)):
        for name, run in peers.items():
            begun = time.perf_counter()
            await asyncio.gather(*(timed(name, run) for _ in range(concurrent)))
            totals[name] += time.perf_counter() - begun
    return {name: Measured(seconds[name], totals[name]) for name in peers}


def _table(results: dict[str, Measured], concurrent: int) -> Table:
    table = Table(title=f"{concurrent} at once")
    for column in ("", "a second", "p50 ms", "p99 ms", "p50 over subprocess"):
        table.add_column(column, justify="right" if column else "left")
    bare = results["subprocess"].percentile(0.5)
    for name, found in results.items():
        p50, p99 = found.percentile(0.5), found.percentile(0.99)
        table.add_row(name, f"{found.rate:.1f}", f"{p50:.1f}", f"{p99:.1f}", f"{p50 / bare:.2f}x")
    return table


async def _calls(driver: BubblewrapDriver, rounds: int) -> Table:
    """Calls in a sandbox that runs already."""
    table = Table(title="a call in a running sandbox")
    for column in ("", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right" if column else "left")
    async with driver.sandbox(SPEC) as sandbox:
        for name, command in (("true", ["true"]), ("python", PROGRAM)):
            taken = []
            for _ in range(rounds):
                begun = time.perf_counter()
                await sandbox.exec(command)
                taken.append(time.perf_counter() - begun)
            p99 = sorted(taken)[int(0.99 * len(taken))]
            table.add_row(name, f"{1e3 * statistics.median(taken):.1f}", f"{1e3 * p99:.1f}")
    return table


def _command(command: list[str]) -> Round:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={})
        _, stderr = await process.communicate()
        assert process.returncode == 0, stderr.decode(errors="replace")

    return run


def _jailed(nsjail: str) -> list[str]:
    """nsjail as near to a sandbox of ours as it comes; its own seccomp policy and cgroups are left out."""
    seen = [
        path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ssl", "/etc/alternatives") if os.path.exists(path)
    ]
    seen += sorted({sys.prefix, sys.base_prefix})
    user = ["--user", "1000", "--group", "1000"]  # whoever runs this, seen as 1000
    binds = [word for path in dict.fromkeys(seen) for word in ("-R", path)]
    tmpfs = ["-m", "none:/workspace:tmpfs:size=67108864", "-m", "none:/tmp:tmpfs:size=67108864"]
    limits = ["--rlimit_as", "4096", "--time_limit", "60"]
    return [nsjail, "-Mo", "-q", *user, *limits, *binds, *tmpfs, "--cwd", "/workspace", "--", *PROGRAM]


if __name__ == "__main__":
    main()
