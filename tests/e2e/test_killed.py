"""The engine is killed, again and again: the run ends in the same, and no step that ended runs twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import POSTTRAIN, SECONDS, posttrain
from .test_route import STEPS, records

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(600), pytest.mark.slow]

KILLS = 5


def digests(workspace: Path, run: str) -> dict[str, object]:
    """Every output that must not depend on when the engine died: references by digest, numbers as they are."""
    return {
        f"{step}.{name}": value.split("#")[-1] if isinstance(value, str) else value
        for step, record in records(workspace, run).items()
        for name, value in record["outputs"].items()
        if name not in record["measured"] and (not isinstance(value, str) or "#sha256:" in value)
    }


def test_killed_at_random_moments_the_run_ends_in_the_same(finished: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    workspace = tmp_path / "workspace"
    command = [POSTTRAIN, "run", "sft", "--preset", "tiny", "--name", "tiny", "-w", str(workspace)]
    until = time.monotonic() + SECONDS
    kills = 0
    first_records: dict[str, dict] = {}
    while time.monotonic() < until:
        engine = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            engine.wait(timeout=moments.uniform(2, 12) if kills < KILLS else until - time.monotonic())
        except subprocess.TimeoutExpired:
            engine.send_signal(signal.SIGKILL)
            engine.wait()
            kills += 1
            first_records = records(workspace, "tiny") | first_records
            if (workspace / "engine" / "tiny" / "workflow.json").exists():
                command = [POSTTRAIN, "resume", "tiny", "-w", str(workspace)]
            continue
        assert engine.stderr is not None
        assert engine.returncode == 0, engine.stderr.read()
        break
    assert kills >= KILLS
    ended = records(workspace, "tiny")
    assert set(ended) == STEPS
    for step, record in first_records.items():
        assert ended[step] == record, f"{step} had ended and ran again"
    workflow = json.loads(posttrain("get", "tiny", "-o", "json", "-w", workspace).stdout)
    pods = [n for n in workflow["status"]["nodes"].values() if n["type"] == "Pod"]
    assert len(pods) == len(STEPS) + 1, "one pod a step, and the server's"
    assert digests(workspace, "tiny") == digests(finished, "tiny")
