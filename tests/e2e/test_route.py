"""The whole route: it ends, every step left its record, and a step can be run again to the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import posttrain

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(600)]

STEPS = {
    "validate", "prepare_model", "prepare_data", "baseline", "sft", "evaluate", "gate", "export", "verify", "report",
}  # fmt: skip


def records(workspace: Path, run: str) -> dict[str, dict]:
    found = (workspace / "runs" / run).glob("*/record.json")
    return {path.parent.name: json.loads(path.read_text()) for path in found}


def test_every_step_ends_and_leaves_its_record(finished: Path) -> None:
    found = records(finished, "tiny")
    assert set(found) == STEPS
    for record in found.values():
        assert record["environment"]["name"] in ("control", "cpu")
        assert re.fullmatch("sha256:[0-9a-f]{64}", record["environment"]["digest"])


def test_what_a_step_was_given_is_what_another_made(finished: Path) -> None:
    found = records(finished, "tiny")
    made = {v for r in found.values() for v in r["outputs"].values() if isinstance(v, str) and "#sha256:" in v}
    given = {v for r in found.values() for v in r["inputs"].values() if isinstance(v, str) and "#sha256:" in v}
    assert given and given <= made


def test_the_run_can_be_looked_at(finished: Path) -> None:
    shown = posttrain("get", "tiny", "-w", finished)
    assert shown.stdout.startswith("tiny: Succeeded, 10 of 10 steps")
    assert "interrupted" not in posttrain("list", "-w", finished).stdout
    workflow = json.loads(posttrain("get", "tiny", "-o", "json", "-w", finished).stdout)
    assert workflow["status"]["phase"] == "Succeeded"
    assert "steps.gate" in posttrain("logs", "tiny", "gate", "-w", finished).stdout
    assert posttrain("watch", "tiny", "-w", finished).returncode == 0


def test_the_report_needs_nothing_from_elsewhere(finished: Path) -> None:
    page = (finished / "runs/tiny/report/report.html").read_text()
    assert not re.search(r"""(src|href)\s*=|url\(|@import|<script|<link""", page)
    for step in STEPS - {"report"}:
        assert step.replace("_", "-") in page
    assert page.count('<polyline class="curve') >= 1
    assert page.count('class="answer ') >= 2


def test_a_step_run_again_makes_the_same(finished: Path) -> None:
    done = posttrain("rerun", "tiny", "sft", "--check", "-w", finished)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("every output is the same")
    again = records(finished, "tiny-rerun-1")["sft"]
    first = records(finished, "tiny")["sft"]
    assert again["outputs"]["loss"] == first["outputs"]["loss"]
    assert again["outputs"]["model"].split("#")[1] == first["outputs"]["model"].split("#")[1]


def test_a_run_that_ended_is_not_run_again(finished: Path) -> None:
    before = records(finished, "tiny")
    assert posttrain("resume", "tiny", "-w", finished).returncode == 0
    assert records(finished, "tiny") == before
    again = posttrain("run", "sft", "--preset", "tiny", "--name", "tiny", "-w", finished)
    assert again.returncode == 2
    assert again.stderr.splitlines()[-1].startswith("error: name: there is a run of this name (got 'tiny')")
