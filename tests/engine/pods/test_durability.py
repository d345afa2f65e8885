"""Pods outlive the engine and are found again; what is killed leaves nothing; a full disk is said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from posttrain.contract.record import ROOT
from posttrain.engine.container import memory_prefix
from posttrain.engine.poddir import PodDirectory
from posttrain.engine.pods import LOST, PodRunner, wake
from posttrain.engine.podspec import PodSpec
from posttrain.errors import UserError
from posttrain.isolation import cgroups, processes
from tests.engine.pods.conftest import Pods, files, parameter

FORKS = "(setsid sh -c 'while :; do sleep 0.2; done' &) ; while :; do sleep 0.2; done"


def supervisor(directory: str) -> int:
    found = PodDirectory(directory).supervisor()
    assert found is not None
    return found[0]


def test_a_killed_supervisor_is_an_error_and_takes_its_tree_with_it(pods: Pods) -> None:
    main = {"resources": {"limits": {"memory": "256Mi"}}}
    spec = pods.spec("sh", "-c", FORKS, main=main, sidecars=[{"name": "beside", "command": ["sh", "-c", FORKS]}])
    pods.runner.start(spec)
    pods.wait(spec, lambda status: status.phase == "Running")
    while len(list(processes.marked(spec.directory))) < 4:
        time.sleep(0.02)
    os.kill(supervisor(spec.directory), signal.SIGKILL)
    status = pods.wait(spec, lambda status: status.phase != "Running")
    assert (status.phase, status.message) == ("Error", LOST)
    assert not list(processes.marked(spec.directory)) and not pods.runner.alive(spec.directory)
    assert not cgroups.left(memory_prefix(spec.directory))
    pods.runner.start(spec)  # it is not run a second time
    assert pods.runner.status(spec.directory) == status


ENGINE = """
import json, sys, time
from posttrain.engine.pods import PodRunner
from posttrain.engine.podspec import PodSpec
runner = PodRunner(sys.argv[1], sys.argv[2])
for text in sys.argv[3:]:
    runner.start(PodSpec(**json.loads(text)))
print("started", flush=True)
time.sleep(60)
"""


def test_pods_outlive_a_killed_engine_and_are_taken_up(pods: Pods, tmp_path: Path) -> None:
    root = tmp_path / "pods"
    go = tmp_path / "go"
    go.mkdir()
    script = "until [ -f /go/now ]; do sleep 0.05; done; echo x >> /go/ran; echo done > /tmp/word"
    specs = [
        replace(
            pods.spec("sh", "-c", script, main={"volumeMounts": [{"name": "go", "mountPath": "/go"}]}),
            id=name, directory=str(root / name), volumes={"go": str(go)}, outputs=files(word="/tmp/word"),
        )
        for name in ("one", "two")
    ]  # fmt: skip
    command = [sys.executable, "-c", ENGINE, str(root), pods.driver, *(json.dumps(asdict(s)) for s in specs)]
    engine = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert engine.stdout is not None and engine.stdout.readline() == b"started\n"
    engine.kill()
    engine.wait()
    engine.stdout.close()
    with PodRunner(root, pods.driver) as runner:
        for spec in specs:
            assert runner.alive(spec.directory) and not runner.status(spec.directory).ended
            runner.start(spec)
        (go / "now").touch()
        waiting = {s.id for s in specs}
        end = time.monotonic() + 10
        while waiting and time.monotonic() < end:
            runner.wait(1)
            waiting -= {s.id for s in specs if runner.status(s.directory).ended}
        assert not waiting
        for spec in specs:
            assert parameter(runner.status(spec.directory), "word") == "done"
    assert (go / "ran").read_text() == "x\n" * 2


def test_an_adopted_pod_whose_supervisor_is_killed_is_noticed(pods: Pods) -> None:
    spec = pods.spec("sleep", "60")
    pods.runner.start(spec)
    pods.wait(spec, lambda status: status.phase == "Running")
    with PodRunner(pods.root, pods.driver) as second:
        second.start(spec)
        os.kill(supervisor(spec.directory), signal.SIGKILL)
        end = time.monotonic() + 10
        while not second.status(spec.directory).ended and time.monotonic() < end:
            second.wait(1)
        assert second.status(spec.directory).message == LOST


def test_pods_go_on_when_the_zygote_is_killed_and_new_ones_start(pods: Pods) -> None:
    spec = pods.spec("sleep", "1")
    pods.runner.start(spec)
    pods.wait(spec, lambda status: status.phase == "Running")
    assert pods.runner._zygote is not None
    pods.runner._zygote.kill()
    assert pods.sh("exit 0").phase == "Succeeded"
    assert pods.wait(spec, lambda status: status.ended).phase == "Succeeded"


def test_a_pod_that_was_announced_and_never_came_to_be_is_started(pods: Pods) -> None:
    spec = pods.spec("true")
    os.makedirs(spec.directory)
    Path(spec.directory, "pod.json").write_text(json.dumps(asdict(spec)))  # the engine was killed right after this
    assert pods.run(spec).phase == "Succeeded"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_pod_whose_start_was_lost_with_an_engine_is_started(pods: Pods, stopped: bool) -> None:
    """The killed engine had handed the pod to its zygote, which had not got to it and went, too."""
    spec = pods.spec("sleep", "60" if stopped else "0")
    os.makedirs(spec.directory)
    in_flight = PodDirectory(spec.directory).lock()
    assert in_flight is not None
    pods.runner.start(spec)
    os.close(in_flight)
    if stopped:  # before it has been noticed
        pods.runner.stop(spec.directory, 5)
    assert pods.wait(spec, lambda status: status.ended).phase == ("Failed" if stopped else "Succeeded")


def test_a_pid_that_is_used_again_is_not_mistaken(pods: Pods) -> None:
    spec = pods.spec("sleep", "60")
    pods.runner.start(spec)
    pods.wait(spec, lambda status: status.phase == "Running")
    victim = subprocess.Popen(["sleep", "60"])
    try:
        with open(f"{spec.directory}/lock", "r+") as lock:
            lock.write(f"{victim.pid} 1\n")
        pods.runner.kill(spec.directory)
        time.sleep(0.2)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
        os.kill(next(p for p in _holders(spec.directory)), signal.SIGKILL)


def _holders(directory: str) -> list[int]:
    """Processes that have the pod's lock open."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                links = [os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
            except OSError:
                continue
            if f"{directory}/lock" in links:
                found.append(int(entry))
    return found


def test_a_word_wakes_the_engine(pods: Pods) -> None:
    begun = time.monotonic()
    subprocess.Popen(
        [sys.executable, "-c", f"from posttrain.engine.pods import wake; wake({str(pods.root)!r}, 'order')"], cwd=ROOT
    ).wait()
    words: set[str] = set()
    while "order" not in words and time.monotonic() < begun + 10:
        words |= pods.runner.wait(5)
    assert "order" in words
    wake(pods.root / "nobody", "order")  # nobody listens: no error


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_is_said_in_one_line(pods: Pods, small_disk: Path) -> None:
    with PodRunner(small_disk / "pods", pods.driver) as runner:

        def run(name: str, script: str, **fields) -> str:
            spec = replace(pods.spec("sh", "-c", script, **fields), directory=str(small_disk / "pods" / name), id=name)
            runner.start(spec)
            end = time.monotonic() + 10
            while not (status := runner.status(spec.directory)).ended and time.monotonic() < end:
                runner.wait(1)
            assert status.phase in ("Failed", "Error") and "\n" not in status.message, status
            Path(spec.directory, "logs/main").unlink()
            return status.message

        assert re.search(r"no space is left|No space left", run("log", "yes | head -c 3000000"))
        assert re.search(r"no space is left|No space left", run("result", "yes | head -c 3000000", capture_result=True))
        (small_disk / "filler").write_bytes(b"")
        with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        spec = replace(pods.spec("true"), directory=str(small_disk / "pods" / "late"), id="late")
        with pytest.raises(UserError, match=r"cannot start pod .*No space left on device"):
            runner.start(spec)
        (small_disk / "filler").unlink()
        runner.start(spec)  # nothing half done stands in the way
        while not runner.status(spec.directory).ended:
            runner.wait(1)
        assert runner.status(spec.directory).phase == "Succeeded"


def test_many_pods_leave_nothing(pods: Pods) -> None:
    assert pods.sh("exit 0").phase == "Succeeded"  # the zygote is up
    assert pods.runner._zygote is not None
    zygote = pods.runner._zygote.pid
    while processes.children(zygote):
        time.sleep(0.02)
    specs = [
        pods.spec("sh", "-c", f"sleep 0.1; exit {i % 2}", main={"resources": {"limits": {"memory": "1Gi"}}})
        for i in range(60)
    ]
    before = _inventory(zygote, specs)
    waiting = {spec.id: spec for spec in specs}
    for spec in specs:
        pods.runner.start(spec)
    end = time.monotonic() + 60
    while waiting:
        assert time.monotonic() < end, f"{len(waiting)} pods have not ended"
        for id in pods.runner.wait(1):
            if id in waiting and pods.runner.status(waiting[id].directory).ended:
                del waiting[id]
    assert [pods.runner.status(s.directory).phase for s in specs] == ["Succeeded", "Failed"] * 30
    end = time.monotonic() + 10
    while (after := _inventory(zygote, specs)) != before and time.monotonic() < end:
        time.sleep(0.1)
    assert after == before
    assert all(not os.path.exists(f"{s.directory}/root") for s in specs)


def _inventory(zygote: int, specs: list[PodSpec]) -> dict[str, object]:
    """What the pods could leave behind on the machine and in the two processes that start them."""
    groups = {path.name for path in cgroups.left("posttrain-")}
    mounts = Path("/proc/self/mounts").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "zygote's descriptors": len(os.listdir(f"/proc/{zygote}/fd")),
        "zygote's children": processes.children(zygote),
        "mounts": [s.id for s in specs if s.directory in mounts],
        "groups": [name for name in groups if name.startswith(tuple(memory_prefix(s.directory) for s in specs))],
        "processes": list(processes.marked(str(Path(specs[0].directory).parent))),
    }
