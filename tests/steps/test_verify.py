"""The step verify against a real server: the right model passes, a wrong one and a dead one do not."""

from __future__ import annotations

import os
import signal

import pytest

from posttrain.evaluation.schema import from_table
from posttrain.lake import open_table
from posttrain.serving.client import ChatClient, ServerFailed
from posttrain.serving.requirements import Requirements
from posttrain.serving.verification import verify
from tests.processes import free_port, wait_until
from tests.steps.conftest import ROWS, complaint, descendants, outputs, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them

RELEASE = "models/other"


def test_the_model_that_was_evaluated_passes(workspace, evaluated, served):
    asked = {"release": RELEASE, "results": evaluated["results"], "address": "127.0.0.1"}
    done = run_step(workspace, "verify", asked, {"port": served.port}, run="right")
    assert done.returncode == 0, done.stderr
    told = outputs(workspace, "verify", "right")
    assert told["verdict"] == f"passed: {ROWS} prompts"
    assert 0 < told["latency_p50_ms"] <= told["latency_p99_ms"] and told["tokens_per_second"] > 0
    assert abs(told["served_accuracy"] - evaluated["accuracy"]) < 0.2


def test_a_model_that_is_not_the_evaluated_one_fails_with_the_reasons(workspace, made, served):
    asked = {"release": RELEASE, "results": made["results"], "address": "127.0.0.1"}
    done = run_step(workspace, "verify", asked, {"port": served.port}, run="wrong")
    assert done.returncode == 1
    said = complaint(done)
    assert "of the answers are those of the evaluation" in said
    assert "is not within the evaluation's interval" in said
    assert f"of {ROWS} prompts that the evaluation saw answered rightly" in said
    assert not (workspace / "runs/wrong/verify/record.json").exists()


def test_a_server_of_another_release_fails_before_it_is_asked(workspace, evaluated, served):
    asked = {"release": "models/able", "results": evaluated["results"], "address": "127.0.0.1"}
    done = run_step(workspace, "verify", asked, {"port": served.port}, run="elsewhere")
    assert done.returncode == 1 and "which is not models/able" in complaint(done)


def test_latency_can_be_asked_for(workspace, evaluated, served):
    asked = {"release": RELEASE, "results": evaluated["results"], "address": "127.0.0.1"}
    config = {"port": served.port, "requirements": {"prompts": 2, "max_latency_p99_ms": 0.01}}
    done = run_step(workspace, "verify", asked, config, run="slow")
    assert done.returncode == 1 and "0 ms are allowed" in complaint(done)


def test_nobody_there_is_one_line(workspace, evaluated):
    asked = {"release": RELEASE, "results": evaluated["results"], "address": "127.0.0.1"}
    done = run_step(workspace, "verify", asked, {"port": free_port(), "wait_seconds": 0.5}, run="nobody")
    assert done.returncode == 1 and "cannot be reached" in complaint(done)


def test_a_server_killed_while_it_is_asked_is_one_line_and_leaves_nothing(workspace, evaluated, served):
    """The last test of this server."""
    table = open_table(workspace, evaluated["results"], field="results").to_table()
    results, how = from_table(table, field="results")
    below = descendants(served.process.pid)

    def kill(correct: bool) -> None:
        if served.process.poll() is None:
            os.kill(below[0], signal.SIGKILL)
            served.process.wait(60)

    with pytest.raises(ServerFailed, match="stopped answering"):
        verify(ChatClient(served.url), results, how, Requirements(concurrency=1), kill)
    assert served.process.returncode == 1
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below), "the engine outlived the server", 20)
