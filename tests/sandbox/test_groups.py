"""A child is in its group before it does anything, however the kernel lets it get there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.isolation import cgroups
from posttrain.sandbox.line import prefix_of

pytestmark = pytest.mark.skipif(not cgroups.hierarchies(), reason="no group can be made here")

# In a process of its own, since one that forks so must have one thread.
PARENT = """
import os, sys
from pathlib import Path
from posttrain.isolation import cgroups

name, call, born = sys.argv[1:]
if not born:
    cgroups._fork_into = lambda _: None
group = cgroups.Group(name, cgroups.Limits(memory=1 << 28, pids=50), calls=True)
assert not call or group.open_call(call)
pid = group.fork(call)
if pid == 0:
    group.join(call)
    os.write(1, Path("/proc/self/cgroup").read_bytes())
    os._exit(0)
assert os.waitpid(pid, 0) == (pid, 0)
"""


@pytest.fixture
def name() -> Iterator[str]:
    made = f"{prefix_of(os.getpid())}5000"  # so that a reaper finds it where this process is killed
    yield made
    cgroups.Group(made, cgroups.Limits(memory=1 << 28, pids=50), calls=True).remove()


@pytest.mark.parametrize("born", ["1", ""], ids=["by clone3", "where clone3 is refused"])
@pytest.mark.parametrize("call", ["", "7"])
def test_a_child_is_in_every_hierarchy_of_its_group(name: str, call: str, born: str) -> None:
    command = [sys.executable, "-c", PARENT, name, call, born]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found = [line.split(":", 2)[2] for line in done.stdout.splitlines()]
    ours = [path for path in found if f"/{name}" in path]
    paths = cgroups.Group(name, cgroups.Limits(memory=1 << 28, pids=50), calls=True).paths
    assert len(ours) == len(paths)
    assert sum(path.endswith(f"/{call}") for path in ours) == (1 if call else 0)
