"""Nothing is left: after any end of a call, and when the worker, the launcher or both are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.contract.record import ROOT
from posttrain.isolation import cgroups
from posttrain.isolation.processes import children, descendants
from posttrain.sandbox import Outcome, Sandbox, SandboxGone
from posttrain.sandbox.bubblewrap import UID
from posttrain.sandbox.line import prefix_of
from posttrain.sandbox.reaper import PREFIX, abandoned, reap
from tests.sandbox.conftest import Boxes


def _inventory(launcher: int) -> dict[str, object]:
    """What sandboxes could leave on the machine, in the worker and in its launcher."""
    mine = f"{PREFIX}{os.getpid()}-"
    places = (("/run", "*posttrain*/*"), ("/dev/shm", "*posttrain*/*"), (tempfile.gettempdir(), f"{mine}*"))
    return {
        "worker's descriptors": len(os.listdir("/proc/self/fd")),
        "launcher's descriptors": len(os.listdir(f"/proc/{launcher}/fd")),
        "processes": children(launcher),
        "mounts": _mounts("self"),
        "launcher's mounts": _mounts(launcher),
        "groups": [str(path) for path in cgroups.left(mine)],
        "files": sorted(str(path) for place, names in places for path in Path(place).glob(names)),
    }


def _mounts(pid: int | str) -> list[str]:
    """Those that bubblewrap or the launcher could have made; others of the machine come and go."""
    marks = ("posttrain-sandbox", "newroot", "oldroot", f"uid={UID}")
    return [line for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines() if any(m in line for m in marks)]


async def _succeed(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["sh", "-c", "echo x > f; (setsid sleep 999 &) ; cat f"])).outcome is Outcome.succeeded


async def _fail(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["false"])).outcome is Outcome.failed


async def _run_out(sandbox: Sandbox) -> None:
    result = await sandbox.exec(["sh", "-c", "(setsid sleep 999 &) ; sleep 999"], timeout=0.02)
    assert result.outcome is Outcome.timed_out


async def _be_cancelled(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec(["sleep", "999"]))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _be_stopped(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec(["sleep", "999"]))
    await asyncio.sleep(0.01)
    await sandbox.stop()
    assert (await task).outcome is Outcome.cancelled


async def _not_be_found(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["no-such-program"])).code == 127


ENDS: list[Callable] = [_succeed, _fail, _run_out, _be_cancelled, _be_stopped, _not_be_found]


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_nothing_is_left(boxes: Boxes, runs: int) -> None:
    async def one(number: int) -> None:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            await ENDS[number % len(ENDS)](sandbox)

    async def many(numbers: range) -> None:
        for first in range(numbers.start, numbers.stop, 4):
            await asyncio.gather(*(one(number) for number in range(first, min(first + 4, numbers.stop))))

    boxes.run(many(range(len(ENDS))))
    launcher = boxes.driver.line.process.pid
    before = _inventory(launcher)
    for first in range(0, runs, 50):
        boxes.run(many(range(first, first + 50)))
    end = time.monotonic() + 5
    while (after := _inventory(launcher)) != before and time.monotonic() < end:
        time.sleep(0.05)
    assert after == before
    assert before["processes"] == before["groups"] == before["files"] == []


WORKER = """
import asyncio, json, os, sys
from posttrain.sandbox import SandboxSpec
from posttrain.sandbox.bubblewrap import BubblewrapDriver

async def main():
    driver = BubblewrapDriver()
    sandboxes = [driver.sandbox(SandboxSpec(memory="64Mi")) for _ in range(2)]
    for sandbox in sandboxes:
        await sandbox.start()
        await sandbox.spawn(["sh", "-c", "(setsid sleep 5151 &); sleep 5151"])
    while sum(b"5151" in open(f"/proc/{p}/cmdline", "rb").read() for p in descendants(driver.line.process.pid)) < 6:
        await asyncio.sleep(0.02)
    print(json.dumps([driver.line.process.pid, driver.line.prefix]), flush=True)
    await asyncio.sleep(60)

from posttrain.isolation.processes import descendants
asyncio.run(main())
"""


@pytest.mark.parametrize("victims", ["worker", "launcher", "both"])
def test_whoever_is_killed_nothing_goes_on(boxes: Boxes, victims: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        launcher, prefix = json.loads(worker.stdout.readline())
        running = [*descendants(launcher)]
        assert len(running) >= 6
        if victims in ("launcher", "both"):
            os.kill(launcher, signal.SIGKILL)
        if victims in ("worker", "both"):
            worker.kill()
        _gone(lambda: not [pid for pid in running if _alive(pid)])
        if victims == "both":
            _gone(lambda: not _alive(worker.pid))
            reap()  # as the next driver does
        _gone(lambda: not cgroups.left(prefix))
        worker.kill()
    # Of this worker: what another process of the tests kills at this moment is its own affair.
    assert not [path for path in abandoned() if path.name.startswith(prefix)]


def test_what_a_killed_worker_left_is_found_by_its_name(boxes: Boxes) -> None:
    if not cgroups.hierarchies():
        pytest.skip("no group can be made here")
    with subprocess.Popen(["sleep", "77"]) as worker:  # alive until all is made, or any reaper may take it
        group = cgroups.Group(f"{prefix_of(worker.pid)}7", cgroups.Limits(memory=1 << 24, pids=9))
        with subprocess.Popen(["sleep", "77"], preexec_fn=group.join) as left:
            mine = cgroups.Group(f"{boxes.driver.line.prefix}4000", cgroups.Limits(memory=1 << 24))
            worker.kill()
            worker.wait()
            assert not {*reap()} & {*mine.paths}
            assert left.wait(5) == -signal.SIGKILL
    assert not any(path.exists() for path in group.paths) and all(path.exists() for path in mine.paths)
    mine.remove()


def test_a_driver_goes_on_when_its_launcher_was_killed(boxes: Boxes) -> None:
    async def work() -> tuple[Outcome, Outcome]:
        sandbox = boxes.driver.sandbox(boxes.spec())
        await sandbox.start()
        task = asyncio.create_task(sandbox.exec(["sleep", "999"]))
        await asyncio.sleep(0.05)
        os.kill(boxes.driver.line.process.pid, signal.SIGKILL)
        lost = await task
        with pytest.raises(SandboxGone):
            await sandbox.exec(["true"])
        await sandbox.stop()
        async with boxes.driver.sandbox(boxes.spec()) as other:
            return lost.outcome, (await other.exec(["true"])).outcome

    assert boxes.run(work()) == (Outcome.infrastructure_error, Outcome.succeeded)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _gone(true: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "something is left"
        time.sleep(0.02)
