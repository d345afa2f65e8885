"""Gateways and stand-in engines as processes; a model directory whose tokenizer and template are a real family's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from posttrain.llmm import trace
from tests.llmm.tokens.families import tokenizer
from tests.processes import free_port, wait_for

ROOT = Path(__file__).parents[3]
ADMIN, CLIENT = "admin-secret", "client-secret"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT), "POSTTRAIN_TRACKING": "off", "POSTTRAIN_GATEWAY_ADMIN": ADMIN, "CLIENT_KEY": CLIENT,
    "LIMITED_KEY": "limited-secret",
}  # fmt: skip


@contextmanager
def running(command: list[str], url: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT)
    try:
        wait_for(url, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Gateway:
    """One gateway with its engines."""

    url: str
    workspace: Path
    engines: list[str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def trajectory(self, task: str = "t", **more: Any) -> tuple[str, str]:
        made = self.admin("POST", "/trajectories", {"task": task, **more})
        return made["id"], made["key"]

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(
            method, self.url + path, json=body, headers={"authorization": f"Bearer {ADMIN}"}, timeout=60
        )
        assert answer.is_success, answer.text
        return answer.json()

    def finish(self, name: str, **ending: Any) -> Any:
        return self.admin("POST", f"/trajectories/{name}/finish", ending)

    def told(self, engine: int = 0) -> Any:
        return httpx.get(self.engines[engine] + "/told").json()

    def metric(self, name: str) -> dict[str, float]:
        lines = httpx.get(self.url + "/metrics").text.splitlines()
        found = (line.rsplit(" ", 1) for line in lines if line.startswith("posttrain_gateway_" + name))
        return {key.removeprefix("posttrain_gateway_"): float(value) for key, value in found}

    def journal(self) -> Path:
        return self.workspace / "runs" / "r" / "gateway" / "journal"

    def ledger(self, name: str) -> list[trace.Event]:
        """Of a trajectory that has ended."""
        return trace.read(self.journal() / "traces" / f"{name}.jsonl")

    def rows(self) -> list[dict[str, Any]]:
        from posttrain.lakestream import Stream

        stream = Stream.open(self.workspace / "lake" / "experience.lance")
        return stream.snapshot().to_table().to_pylist() if stream else []


def directory_of(family: str, root: Path, context: int = 8192) -> Path:
    """A model directory without weights: what the gateway reads of one."""
    made = root / "models" / family
    tokenizer(family).save_pretrained(made)
    (made / "config.json").write_text(json.dumps({"max_position_embeddings": context}))
    return made


@contextmanager
def gateway(
    workspace: Path, *, family: str = "qwen2_5", engines: int = 1, context: int = 8192, **settings: Any
) -> Iterator[Gateway]:
    """A gateway over stand-in engines, as the step runs it."""
    directory_of(family, workspace, context)
    with ExitStack() as stack:
        urls, processes = [], []
        for _ in range(engines):
            port = free_port()
            command = [
                sys.executable,
                "-m",
                "tests.llmm.gateway.standin",
                str(workspace / "models" / family),
                str(port),
            ]
            processes.append(stack.enter_context(running(command, f"http://127.0.0.1:{port}/health")))
            urls.append(f"http://127.0.0.1:{port}")
        settings = {"versions": [{"name": "main", "replicas": urls, "policy": 7}], **settings}
        for version in settings["versions"]:
            version["replicas"] = [urls[r] if isinstance(r, int) else r for r in version["replicas"]]
        url, process = stack.enter_context(started(workspace, family, settings))
        yield Gateway(url, workspace, urls, [process, *processes])


@contextmanager
def started(workspace: Path, family: str, settings: dict[str, Any]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    settings = {"health_seconds": 0.2, "keys": [{"name": "client", "variable": "CLIENT_KEY"}], **settings}
    command = [
        sys.executable, "-m", "steps.gateway", "--workspace", str(workspace), "--run", "r", "--input",
        f"model=models/{family}", "--input", "stream=lake/experience.lance", "--config",
        json.dumps({"port": port, "host": "127.0.0.1", "gateway": settings}),
    ]  # fmt: skip
    with running(command, f"http://127.0.0.1:{port}/health") as process:
        yield f"http://127.0.0.1:{port}", process


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway")) as served:
        yield served
