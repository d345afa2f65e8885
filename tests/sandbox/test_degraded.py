"""A machine that lets no cgroup be made: sandboxes work for root and for a user without any right, with limits on
single processes, and say so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.contract.record import ROOT

WORK = """
import asyncio, json, os
from posttrain.doctor import sandboxes
from posttrain.isolation.processes import descendants
from posttrain.sandbox import SandboxSpec, open_driver

async def main():
    check = sandboxes()
    told = {"doctor": [check.state, check.advice]}
    driver = open_driver()
    async with driver.sandbox(SandboxSpec(memory="256Mi", pids=40, disk="8Mi")) as sandbox:
        async def ends(*command, timeout=20):
            return (await sandbox.exec(list(command), timeout=timeout)).outcome.value
        told["plain"] = await ends("true")
        bomb = "import os, time\\nwhile True:\\n  try: os.fork()\\n  except OSError: time.sleep(0.05)"
        told["bomb"] = await ends("python3", "-I", "-S", "-c", bomb, timeout=1)
        told["memory"] = await ends("python3", "-I", "-S", "-c", "x = bytearray(1 << 30)")
        told["disk"] = await ends("sh", "-c", "head -c 9M /dev/zero > /tmp/x")
        told["daemon"] = await ends("sh", "-c", "(setsid sleep 60 &); sleep 60", timeout=0.2)
        told["after"] = await ends("true")
    told["left"] = len(list(descendants(driver.line.process.pid)))
    await driver.close()
    print(json.dumps(told))

asyncio.run(main())
"""


NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/tmp"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
@pytest.mark.parametrize("user", [[], NOBODY], ids=["root", "nobody"])
def test_without_cgroups(user: list[str], tmp_path: Path) -> None:
    mounts = ["mount -t tmpfs -o ro none /sys/fs/cgroup", *(_ways(tmp_path) if user else []), 'exec "$@"']
    command = ["unshare", "-m", "sh", "-ec", "\n".join(mounts), "sh", *user, sys.executable, "-B", "-c", WORK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    state, advice = told.pop("doctor")
    assert state == "warn" and "no cgroup for memory, cpu, pids" in advice
    assert told == {
        "plain": "succeeded", "bomb": "timed_out", "memory": "failed", "disk": "over_quota", "daemon": "timed_out",
        "after": "succeeded", "left": 0,
    }  # fmt: skip


def _ways(keep: Path) -> Iterator[str]:
    """Mounts by which everyone can enter the environment and the checkout where a directory above is root's alone."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), ROOT}
    for number, (closed, below) in enumerate(_closed(needed).items()):
        yield f"mkdir {keep}/{number}; mount --bind {closed} {keep}/{number}; mount -t tmpfs -o mode=755 none {closed}"
        for path in below:
            yield f"mkdir -p {path}; mount --bind {keep}/{number}/{path.relative_to(closed)} {path}"


def _closed(needed: set[Path]) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for path in sorted(needed):
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 0o001:
                found.setdefault(parent, []).append(path)
                break
    return found
