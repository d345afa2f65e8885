"""A workspace that the steps' tests share: two tiny models, an evaluation set, evaluations of both, a server.

The set's answers are what the model `able` replies, so that it answers every prompt rightly and the model
`other` (other random weights) hardly any. Starting vLLM takes a while: each of these is made once for all tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from posttrain.contract import record
from posttrain.models.prepare import prepare
from tests.processes import free_port, wait_for

ROOT = Path(__file__).parents[2]
ROWS = 24
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "POSTTRAIN_TRACKING": "off"}


def command(
    workspace: Path, name: str, inputs: dict[str, str], config: dict[str, Any], *, run: str, step: str
) -> list[str]:
    return [
        sys.executable, "-m", f"steps.{name}", "--workspace", str(workspace), "--run", run, "--step", step,
        "--config", json.dumps(config), *(part for k, v in inputs.items() for part in ("--input", f"{k}={v}")),
    ]  # fmt: skip


def run_step(
    workspace: Path, name: str, inputs: dict[str, str], config: dict[str, Any] | None = None, *, run: str = "r",
    step: str = "", **environment: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The step as the process that a workflow starts, in the directory of the workspace's run `run`."""
    return subprocess.run(
        command(workspace, name, inputs, config or {}, run=run, step=step or name),
        cwd=ROOT, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def outputs(workspace: Path, step: str, run: str = "r") -> dict[str, Any]:
    found = record.read(workspace / "runs" / run / step)
    assert found is not None, f"{run}/{step} left no record"
    return found.outputs


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed step ends with; there must be no traceback before it."""
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, the nearest first."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    found = [int(child) for child in listed.split()]
    return found + [far for near in found for far in descendants(near)]


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    prepare(root, "tiny", name="able", seed=0)
    prepare(root, "tiny", name="other", seed=1)
    return root


@pytest.fixture(scope="session")
def made(workspace: Path) -> dict[str, Any]:
    """What `make_set.py` tells: `data`, `results` of the model `able`, texts drawn in two orders."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("make_set.py")), str(workspace), str(ROWS)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def evaluated(workspace: Path, made: dict[str, Any]) -> dict[str, Any]:
    """The outputs of `evaluate` for the model `other`, run as a workflow runs it."""
    config = {"sampling": {"max_tokens": 8}, "engine": {"dtype": "float32"}}
    done = run_step(workspace, "evaluate", {"model": "models/other", "data": made["data"]}, config)
    assert done.returncode == 0, done.stderr
    return outputs(workspace, "evaluate")


@dataclass
class Served:
    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def served(workspace: Path) -> Iterator[Served]:
    """The step `serve` with the model `other`, on its own address, as the engine starts it."""
    port = free_port()
    config = {"port": port, "engine": {"dtype": "float32"}}
    process = subprocess.Popen(
        command(workspace, "serve", {"release": "models/other"}, config, run="served", step="serve"),
        cwd=ROOT, env=ENVIRONMENT | {"POD_IP": "127.0.0.1"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    server = Served(process, port)
    try:
        wait_for(f"{server.url}/health", process, 900)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
