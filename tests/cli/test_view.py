"""How a run looks: rows from a workflow object and the steps' progress."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.cli.follow import outcome
from posttrain.cli.view import Observed, progress_text, rows, summary

START = "2026-01-01T00:00:00Z"
BEGAN = 1767225600.0


def workflow(**nodes: dict[str, Any]) -> dict[str, Any]:
    tasks = [{"name": "prepare-data", "template": "t"}, {"name": "sft", "template": "t", "depends": "prepare-data"}]
    return {
        "metadata": {"name": "run"},
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}]},
        "status": {"phase": "Running", "startedAt": START, "nodes": {n: v | {"type": "Pod"} for n, v in nodes.items()}},
    }


def test_a_running_step_shows_its_progress_and_its_time_so_far() -> None:
    progress = {"time": BEGAN + 8, "task": "train", "done": 41_000, "total": 65_536, "unit": "tokens", "loss": 1.21345}
    node = {"displayName": "sft", "phase": "Running", "startedAt": START}
    row = rows(workflow(sft=node), {"sft": Observed(progress)}, now=BEGAN + 10)[1]
    assert (row.seconds, row.detail) == (10.0, "train 41k/65.5k tokens (63 %), loss 1.213")


def test_progress_of_an_earlier_start_is_not_shown() -> None:
    progress = {"time": BEGAN - 100, "task": "train", "done": 1, "total": 2, "unit": "rows"}
    node = {"displayName": "sft", "phase": "Running", "startedAt": START}
    assert rows(workflow(sft=node), {"sft": Observed(progress)}, now=BEGAN + 10)[1].detail == ""


def test_a_step_that_ended_shows_its_numbers_and_no_references() -> None:
    outputs = {"model": "runs/a#sha256:" + "0" * 64, "loss": "0.41234", "tokens": "98304", "verdict": "better"}
    node = {
        "displayName": "sft", "phase": "Succeeded", "startedAt": START, "finishedAt": "2026-01-01T00:01:30Z",
        "outputs": {"parameters": [{"name": k, "value": v} for k, v in outputs.items()]},
    }  # fmt: skip
    row = rows(workflow(sft=node), {}, now=BEGAN + 500)[1]
    assert (row.seconds, row.detail) == (90.0, "loss 0.4123, tokens 98.3k, verdict better")


def test_a_step_that_ended_counts_the_seconds_it_worked() -> None:
    node = {"displayName": "sft", "phase": "Succeeded", "startedAt": START, "finishedAt": "2026-01-01T00:01:30Z"}
    assert rows(workflow(sft=node), {"sft": Observed(seconds=12.5)}, now=BEGAN)[1].seconds == 12.5


def test_a_step_that_has_not_started_has_no_time() -> None:
    row = rows(workflow(), {}, now=BEGAN)[0]
    assert (row.name, row.word, row.seconds, row.detail) == ("prepare-data", "waiting", None, "")


def test_a_failed_step_shows_its_message() -> None:
    node = {"displayName": "sft", "phase": "Failed", "startedAt": START, "message": "Error (exit code 2)"}
    assert rows(workflow(sft=node), {}, now=BEGAN)[1].detail == "Error (exit code 2)"


def test_the_summary_counts_what_is_done() -> None:
    node = {"displayName": "prepare-data", "phase": "Succeeded", "startedAt": START, "finishedAt": START}
    assert summary(workflow(p=node), now=BEGAN + 130) == "Running, 1 of 2 steps, 2 min 10 s"


def test_a_count_without_an_end() -> None:
    assert progress_text({"time": 0, "task": "read", "done": 12, "total": None, "unit": "rows"}) == "read 12 rows"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["12:00 INFO begun", "error: sft: learning_rate: must be greater than 0", ""], "error: sft: learning_rate: "),
        (
            ["begun", "envs/run: the environment cpu is not installed"],
            "error: sft: Error (exit code 2); it said last: envs",
        ),
        ([], "error: sft: Error (exit code 2)\n"),
    ],
)
def test_of_a_failed_step_its_own_last_word_is_told(lines: list[str], told: str, capsys: pytest.CaptureFixture) -> None:
    node = {"displayName": "sft", "phase": "Failed", "startedAt": START, "message": "Error (exit code 2)"}
    failed = workflow(sft=node)
    failed["status"]["phase"] = "Failed"
    assert outcome(failed, "run", lambda step: [(step, line) for line in lines]) == 1
    assert capsys.readouterr().err.startswith(told)
