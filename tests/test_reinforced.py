"""The route with a cold start and the loop, whole, on the embedded engine: services, recursion, sidecars, weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posttrain.lakestream import Stream

ROOT = Path(__file__).parents[1]


def posttrain(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "posttrain.cli", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=1500,
        env=os.environ | {"POSTTRAIN_TRACKING": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def outputs(workspace: Path, step: str) -> dict[str, Any]:
    return json.loads((workspace / "runs/loop" / step / "record.json").read_text())["outputs"]


@pytest.mark.slow
def test_the_loop_turns_and_an_iteration_computed_again_is_the_same(tmp_path: Path) -> None:
    posttrain("run", "cold_start_rl", "--preset", "tiny", "--name", "loop", "--workspace", str(tmp_path))
    first, second = outputs(tmp_path, "rl_1"), outputs(tmp_path, "rl_2")
    assert (first["version"], second["version"]) == (3, 6)
    trained = [
        name for step in ("rl_1", "rl_2")
        for line in (tmp_path / "runs/loop" / step / "rows.jsonl").read_text().splitlines()
        for name in json.loads(line)["trained"]
    ]  # fmt: skip
    assert len(set(trained)) == len(trained) == second["samples_trained"]
    rows = Stream.open(tmp_path / "lake/loop/experience.lance").snapshot().to_table().to_pylist()
    versions = {row["trajectory"]: [span["version"] for span in row["policy_versions"]] for row in rows}
    for step in ("rl_1", "rl_2"):
        for line in (tmp_path / "runs/loop" / step / "rows.jsonl").read_text().splitlines():
            entry = json.loads(line)
            before = entry["version"] - 1
            assert all(before - 1 <= v <= before for name in entry["trained"] for v in versions[name])
    assert {v for found in versions.values() for v in found} >= {0, 1, 2, 3, 4}
    assert "every output is the same" in posttrain("rerun", "loop", "rl_2", "--check", "--workspace", str(tmp_path))
