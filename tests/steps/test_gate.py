"""The step gate: passes what is no worse than allowed, stops the rest with code 1 and one line."""

from __future__ import annotations

import pytest

from tests.steps.conftest import complaint, outputs, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them


def test_a_better_candidate_passes_and_the_difference_is_told(workspace, made, evaluated):
    pair = {"baseline": evaluated["results"], "candidate": made["results"]}
    done = run_step(workspace, "gate", pair, {"min_difference": 0.2, "evidence": "interval"}, run="better")
    assert done.returncode == 0, done.stderr
    told = outputs(workspace, "gate", "better")
    assert told["difference"] == 1 - evaluated["accuracy"]
    assert 0.2 < told["low"] <= told["difference"] <= told["high"] and told["verdict"].startswith("passed: accuracy")


def test_a_worse_candidate_stops_the_workflow_with_code_1(workspace, made, evaluated):
    pair = {"baseline": made["results"], "candidate": evaluated["results"]}
    done = run_step(workspace, "gate", pair, run="worse")
    assert done.returncode == 1
    assert "failed: accuracy 100.0% -> " in complaint(done) and "-2.0 asked for" in done.stderr
    assert not (workspace / "runs/worse/gate/record.json").exists()


@pytest.mark.parametrize("baseline", ["lake/set.lance", "lake/nothing.lance"])
def test_what_is_no_evaluation_is_one_line(workspace, made, baseline):
    done = run_step(workspace, "gate", {"baseline": baseline, "candidate": made["results"]}, run="odd")
    assert done.returncode == 2 and "gate.baseline: " in complaint(done)
