"""The sandbox service beside a TaskServer: both as processes, tasks by the client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from posttrain.isolation import cgroups
from posttrain.rollout.tasks.api import NewTask
from posttrain.rollout.tasks.client import TaskClient
from posttrain.sandbox.reaper import PREFIX
from tests.processes import free_port, wait_for, wait_until
from tests.rollout.services import start_server
from tests.steps.conftest import ENVIRONMENT, ROOT, command

PYTHON = ["python3", "-I", "-S", "-c"]
CONFIG = {
    "concurrency": 4,
    "specs": {"default": {"memory": "256Mi", "disk": "16Mi"}, "small": {"memory": "64Mi", "output": "10Ki"}},
}


@dataclass
class Service:
    tasks: TaskClient
    process: subprocess.Popen[bytes]
    url: str

    def end(self, payload: Any, **fields: Any) -> tuple[str, Any, str | None]:
        (submitted,) = self.tasks.submit([NewTask(kind="sandbox", payload=payload, **fields)])
        (ended,) = self.tasks.as_ended([submitted.id], timeout=60)
        return ended.state.value, ended.result, ended.reason


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("sandbox")
    port, own = free_port(), free_port()
    server = start_server(str(place / "tasks.db"), port)
    config = CONFIG | {"port": own, "host": "127.0.0.1"}
    url = f"http://127.0.0.1:{port}"
    with TaskClient(url) as client:
        try:
            client.wait_ready(60)
            started = command(place, "sandbox", {"tasks": url}, config, run="r", step="sandbox")
            process = subprocess.Popen(started, cwd=ROOT, env=ENVIRONMENT)
            made = Service(client, process, f"http://127.0.0.1:{own}")
            wait_for(f"{made.url}/ready", process, 60)
            yield made
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            assert not cgroups.left(f"{PREFIX}{process.pid}-")
        finally:
            server.terminate()
            server.wait(30)


def test_a_task_is_run_and_its_result_kept(service: Service) -> None:
    payload = {
        "command": [
            *PYTHON,
            "import sys; print(open('in.txt').read() + sys.stdin.read()); open('out', 'w').write('x')",
        ],
        "files": {"in.txt": "one "},
        "stdin": "two",
        "collect": ["out"],
    }
    state, result, reason = service.end(payload)
    assert (state, reason) == ("succeeded", None) or not reason
    assert result["stdout"] == "one two\n" and result["files"] == {"out": "x"} and result["code"] == 0


@pytest.mark.parametrize(
    ("payload", "state", "said"),
    [
        ({"command": ["sh", "-c", "echo no >&2; exit 3"]}, "failed", "exit code 3"),
        ({"command": ["sleep", "60"], "timeout": 0.2}, "timed_out", "longer than 0.2 s"),
        ({"command": ["yes"], "spec": "small"}, "over_quota", "longer than"),
        (
            {"command": ["true"], "spec": "none"},
            "failed",
            "payload.spec: there is no 'none' here",
        ),
        ({"command": []}, "failed", "payload.command"),
        ({"command": ["true"], "mounts": {"/x": "/root"}}, "failed", "payload.mounts"),
        ({"command": ["true"], "files": {"/etc/x": ""}}, "failed", "Read-only"),
    ],
)
def test_how_a_task_ends(service: Service, payload: dict, state: str, said: str) -> None:
    ended, _, reason = service.end(payload)
    assert ended == state and said in (reason or "")


@pytest.mark.skipif(bool(cgroups.unavailable()), reason=cgroups.unavailable())
def test_a_task_that_takes_too_much_memory(service: Service) -> None:
    code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    assert service.end({"command": [*PYTHON, code], "spec": "small"})[0] == "out_of_memory"


def test_a_deadline_is_met_from_inside(service: Service) -> None:
    state, _, _ = service.end({"command": ["sleep", "60"]}, deadline=3.0)
    assert state == "timed_out"


def test_a_cancelled_task_is_ended(service: Service) -> None:
    (submitted,) = service.tasks.submit([NewTask(kind="sandbox", payload={"command": ["sleep", "4343"]})])
    wait_until(lambda: _runs("4343"), "it was not begun", 30)
    service.tasks.cancel(submitted.id)
    wait_until(lambda: not _runs("4343"), "it goes on", 30)


def test_tasks_side_by_side(service: Service) -> None:
    wanted = [NewTask(kind="sandbox", payload={"command": ["sh", "-c", f"echo {n}"]}) for n in range(24)]
    ids = [each.id for each in service.tasks.submit(wanted)]
    found = {ended.id: ended.result["stdout"] for ended in service.tasks.as_ended(ids, timeout=60)}
    assert [found[each] for each in ids] == [f"{n}\n" for n in range(24)]
    metrics = httpx.get(f"{service.url}/metrics").text
    assert "posttrain_sandbox_pool_hits" in metrics and "posttrain_sandbox_warm" in metrics


def test_a_mistake_in_the_configuration_is_told_before_anything_starts(tmp_path: Path) -> None:
    for config, said in (
        ({"specs": {"a": {"memory": "x"}}}, "memory: is no quantity"),
        ({"warm": -1}, "warm: must be"),
    ):
        done = subprocess.run(
            command(tmp_path, "sandbox", {"tasks": "http://127.0.0.1:1"}, config, run="r", step="s"),
            cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, json.dumps(done.stderr)


def _runs(text: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if text in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False
