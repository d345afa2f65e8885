"""What a report gathers: everything that is there, and no demand for the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posttrain.contract.record import Record
from posttrain.errors import UserError
from posttrain.report import collect, render
from posttrain.report.model import Answer, Sample
from posttrain.report.page import by_interest, headline

DIGEST = "sha256:" + "a" * 64
RESULTS = {"baseline": f"runs/r/baseline/results.lance@1#{DIGEST}", "evaluate": "runs/r/evaluate/results.lance@1"}


def record(workspace: Path, step: str, package: str, started: float, **outputs: object) -> None:
    inputs = {"baseline": RESULTS["baseline"], "candidate": RESULTS["evaluate"]} if package == "gate" else {}
    Record(
        step=step, package=f"steps.{package}", run="r", seed=0, inputs=inputs, config={},
        environment={"name": "cpu", "digest": DIGEST}, source={"revision": "x", "digest": DIGEST},
        outputs=outputs, timings={"started": started, "ended": started + 5, "seconds": 5.0},
        host={"name": "h", "machine": "x86_64", "cores": 2, "python": "3.11"},
    ).write(workspace / "runs" / "r" / step)  # fmt: skip


def evaluation(workspace: Path, step: str, started: float, accuracy: float, right: set[str]) -> None:
    record(
        workspace, step, "evaluate", started, results=RESULTS[step], summary=f"runs/r/{step}/summary.json",
        accuracy=accuracy, accuracy_low=accuracy - 0.05, accuracy_high=accuracy + 0.05, format_rate=1.0,
        mean_tokens=9.0, rows=100,
    )  # fmt: skip
    samples = [
        {
            "id": i,
            "prompt": f"ask {i}",
            "answer": "1",
            "tier": "easy",
            "completion": f"<b>{step}",
            "correct": i in right,
        }
        for i in "abcd"
    ]
    tier = {"accuracy": accuracy, "accuracy_low": 0.0, "accuracy_high": 1.0, "rows": 4}
    summary = {"tiers": {"easy": tier}, "samples": samples}
    (workspace / "runs/r" / step / "summary.json").write_text(json.dumps(summary))


def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="RUN: no such run in the workspace"):
        collect(tmp_path, "r")


def test_a_run_that_failed_at_once_gives_a_page(tmp_path: Path) -> None:
    (tmp_path / "runs/r").mkdir(parents=True)
    entry = {
        "displayName": "sft(1)", "phase": "Failed", "podName": "r-sft-1", "message": "out of <memory>",
        "finishedAt": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found = collect(tmp_path, "r", status="Failed", failures=json.dumps(json.dumps([entry])))
    assert [(s.name, s.phase, s.message) for s in found.steps] == [("sft", "Failed", "out of <memory>")]
    page = render(found)
    assert "out of &lt;memory&gt;" in page and "<memory>" not in page


def test_the_gate_says_which_evaluation_is_the_baseline(tmp_path: Path) -> None:
    evaluation(tmp_path, "evaluate", 0.0, 0.7, {"a", "b"})
    evaluation(tmp_path, "baseline", 10.0, 0.2, {"b", "c"})
    record(tmp_path, "gate", "gate", 20.0, difference=0.5, low=0.4, high=0.6, verdict="passed: better")
    found = collect(tmp_path, "r")
    assert [e.name for e in found.evaluations] == ["baseline", "evaluate"]
    assert headline(found) == "Accuracy 20.0% → 70.0% (+50.0 points; the 95 % intervals do not overlap)"
    assert [s.id for s in by_interest(found.samples)] == ["a", "c", "d", "b"]
    page = render(found)
    assert "&lt;b&gt;baseline" in page and "<b>baseline<" not in page


def test_steps_are_joined_by_what_they_hand_on(tmp_path: Path) -> None:
    record(tmp_path, "one", "one", 0.0, model=f"m#{DIGEST}")
    path = tmp_path / "runs/r/two"
    record(tmp_path, "two", "two", 9.0)
    stored = json.loads((path / "record.json").read_text())
    stored["inputs"] = {"model": f"m#{DIGEST}"}
    (path / "record.json").write_text(json.dumps(stored))
    found = {s.name: s for s in collect(tmp_path, "r").steps}
    assert found["two"].waits_for == ("one",) and found["one"].waits_for == ()


def test_a_curve_that_was_resumed_is_one_curve(tmp_path: Path) -> None:
    record(tmp_path, "sft", "sft", 0.0)
    lines = [{"step": s, "time": 0, "loss": v} for s, v in ((1, 3.0), (2, 2.5), (2, 2.0), (3, 1.0))]
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 4, "lo'
    (tmp_path / "runs/r/sft/metrics.jsonl").write_text(text)
    (step,) = collect(tmp_path, "r").steps
    assert step.curves == {"loss": [(1, 3.0), (2, 2.0), (3, 1.0)]}


def test_samples_that_changed_come_first() -> None:
    def sample(name: str, *right: bool) -> Sample:
        return Sample(name, "", "", "", tuple(Answer("", r) for r in right))

    given = (sample("kept", True, True), sample("lost", True, False), sample("wrong", False, False),
             sample("gained", False, True), sample("gained too", False, True))  # fmt: skip
    order = [s.id for s in by_interest(given)]
    assert order == ["gained", "lost", "gained too", "wrong", "kept"]
