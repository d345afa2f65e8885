"""The step serve as a process: one line where it cannot serve, nothing left behind when it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest

from tests.processes import free_port
from tests.steps.conftest import ENVIRONMENT, ROOT, command, complaint, descendants, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them


def test_it_answers_under_the_releases_name(served):
    listed = httpx.get(f"{served.url}/v1/models").json()["data"]
    assert [model["id"] for model in listed] == ["models/other"]
    body = {"model": "models/other", "messages": [{"role": "user", "content": "1 + 1 = ?"}], "max_tokens": 4}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] <= 4


def test_two_services_share_a_port_on_two_addresses(served):
    """As two daemons of one machine do: this one listens on its pod's address and on no other."""
    with socket.socket() as other:
        other.bind(("127.0.0.2", served.port))


def test_a_port_in_use_is_one_line_before_anything_is_loaded(workspace):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        started = time.monotonic()
        done = run_step(
            workspace, "serve", {"release": "models/other"}, {"port": port}, run="taken", POD_IP="127.0.0.1"
        )
    assert f"serve.port: is in use on 127.0.0.1 (got {port})" in complaint(done)
    assert time.monotonic() - started < 10


def test_a_damaged_release_is_one_line(workspace):
    target = workspace / "releases/cut"
    shutil.copytree(workspace / "models/other", target)
    (target / "model.safetensors").write_bytes(b"\0" * 40)
    done = run_step(workspace, "serve", {"release": "releases/cut"}, {"port": free_port()}, run="cut")
    assert "serve.release: is damaged" in complaint(done)


def test_a_server_that_cannot_start_is_one_line_with_its_own_words(workspace):
    """A model that looks whole and that vLLM does not know."""
    target = workspace / "releases/odd"
    shutil.copytree(workspace / "models/other", target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"architectures": ["NoSuchModel"]}))
    done = run_step(workspace, "serve", {"release": "releases/odd"}, {"port": free_port()}, run="odd")
    said = complaint(done)
    assert "ended with code 1 before it was healthy" in said and "NoSuchModel" in said


def test_a_server_that_is_late_may_be_tried_again(workspace):
    config = {"port": free_port(), "start_seconds": 1}
    done = run_step(workspace, "serve", {"release": "models/other"}, config, run="late")
    assert complaint(done).startswith("error: serve: serve.start_seconds: the server was not healthy after 1 s")
    assert done.returncode == 1, "a code of 2 is a user's mistake, which no cluster tries again"


def test_killed_it_leaves_nothing_behind(workspace, tmp_path):
    """SIGKILL of the step, which can clean up nothing, ends the server too. Before it is up is the hardest moment."""
    port = free_port()
    process = subprocess.Popen(
        command(workspace, "serve", {"release": "models/other"}, {"port": port}, run="killed", step="serve"),
        cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (below := descendants(process.pid)):
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(_lives(pid) for pid in below):
        assert time.monotonic() < until, "the server outlived the step"
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
