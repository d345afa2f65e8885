"""A child is in its group before it does anything, however the kernel lets it get there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.isolation import cgroups
from posttrain.sandbox.reaper import PREFIX

pytestmark = pytest.mark.skipif(not cgroups.hierarchies(), reason="no group can be made here")


@pytest.fixture
def group() -> Iterator[cgroups.Group]:
    made = cgroups.Group(f"{PREFIX}{os.getpid()}-groups", cgroups.Limits(memory=1 << 28, pids=50), calls=True)
    yield made
    made.remove()


@pytest.mark.parametrize("born", [True, False], ids=["by clone3", "where clone3 is refused"])
@pytest.mark.parametrize("call", ["", "7"])
def test_a_child_is_in_every_hierarchy_of_its_group(group, monkeypatch, call, born):
    if not born:
        monkeypatch.setattr(cgroups, "_fork_into", lambda _: None)
    if call:
        assert group.open_call(call)
    told, tell = os.pipe()
    pid = group.fork(call)
    if pid == 0:
        try:
            group.join(call)
            os.write(tell, Path("/proc/self/cgroup").read_bytes())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as lines:
        found = [line.rstrip("\n").split(":", 2)[2] for line in lines]
    assert os.waitpid(pid, 0) == (pid, 0)
    ours = [path for path in found if f"/{group.paths[0].name}" in path]
    assert len(ours) == len(group.paths)
    assert sum(path.endswith(f"/{call}") for path in ours) == (1 if call else 0)
    if call:
        group.close_call(call)
