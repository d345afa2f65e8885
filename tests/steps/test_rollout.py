"""The step rollout as a process, with a real engine and a real reward service: groups leave once, and only as many as
the trainer can still use."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from posttrain.lakestream import PROGRESS, Stream
from tests.processes import free_port, wait_for, wait_until
from tests.steps.conftest import ENVIRONMENT, ROOT, Served, command, complaint, run_step

pytestmark = pytest.mark.xdist_group("samples")

GROUP, BATCH = 2, 3


@pytest.fixture(scope="module")
def reward(workspace: Path) -> Iterator[str]:
    port = free_port()
    with _process(workspace, "reward", {}, {"port": port, "host": "127.0.0.1"}, run="judge", port=port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _process(
    workspace: Path, name: str, inputs: dict[str, str], config: dict[str, Any], *, run: str, port: int
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command(workspace, name, inputs, config, run=run, step=name), cwd=ROOT,
        env=ENVIRONMENT | {"POD_IP": "127.0.0.1"},
    )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/ready", process, 120)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _config(workspace: Path, served: Served, port: int, **admission: Any) -> dict[str, Any]:
    file = workspace / "sums.jsonl"
    file.write_text("".join(json.dumps({"id": f"t{n}", "question": f"{n}+1", "answer": f"{n + 1}"}) + "\n"
                            for n in range(4)))  # fmt: skip
    return {
        "port": port, "engines": [served.url], "environment": {"settings": {"file": str(file)}},
        "engine": {"context_length": 128}, "sampling": {"max_tokens": 8, "trajectory_tokens": 128},
        "admission": {"groups_per_update": BATCH, "group_size": GROUP, **admission},
    }  # fmt: skip


def _rows(workspace: Path, run: str) -> list[dict[str, Any]]:
    try:
        return Stream.open(workspace / "lake" / run / "experience.lance").snapshot().to_table().to_pylist()
    except (OSError, ValueError, LookupError):
        return []


def _progress(workspace: Path, run: str, version: int, trained: int) -> None:
    producer = Stream.create(workspace / "lake" / run / "progress.lance", PROGRESS).producer("trainer")
    now = datetime.datetime.now(datetime.UTC)
    producer.append([{"version": version, "trained": trained, "dropped": 0, "offset": trained * GROUP, "at": now}])


def test_groups_leave_once_over_a_kill_and_wait_for_the_trainer(workspace, served, reward):
    run, port = "loop", free_port()
    asked = {"model": "models/other", "reward": reward}
    config = _config(workspace, served, port, max_staleness=1)
    with _process(workspace, "rollout", asked, config, run=run, port=port) as first:
        wait_until(lambda: len(_rows(workspace, run)) >= GROUP, "rows are missing", 60)
        os.kill(first.pid, signal.SIGKILL)
    with _process(workspace, "rollout", asked, config, run=run, port=port):
        wait_until(lambda: len(_rows(workspace, run)) == 2 * BATCH * GROUP, "rows are missing", 60)
        _progress(workspace, run, 0, 1)  # one was dropped before the first update: one more may come
        wait_until(lambda: len(_rows(workspace, run)) > 2 * BATCH * GROUP, "rows are missing", 60)
    rows = _rows(workspace, run)
    assert len(rows) == (2 * BATCH + 1) * GROUP
    assert Counter(Counter(row["group"] for row in rows).values()) == {GROUP: 2 * BATCH + 1}
    assert len({row["trajectory"] for row in rows}) == len(rows)
    assert Counter(row["task"] for row in rows).most_common()[-1][1] >= GROUP  # each task before one comes again
    for row in rows:
        sampled = sum(row["loss_mask"])
        assert 0 < sampled <= 8 and len(row["tokens"]) == len(row["loss_mask"]) == len(row["logprobs"])
        assert row["policy_versions"] == [
            {"version": 0, "start": len(row["tokens"]) - sampled, "end": len(row["tokens"])}
        ]
        assert row["group_rows"] == GROUP and row["reward"] == 0.0
        assert (row["status"], row["ended"]) in (("finished", None), ("truncated", "overlong"))
    states = Stream.open(workspace / "lake" / run / "timings.lance").snapshot().to_table().to_pylist()
    assert {row["name"] for row in states} >= {"sampling", "waiting_for_room", "group"}


def test_a_trajectory_that_the_cache_has_no_room_for_is_one_line(workspace, served, reward):
    port = free_port()
    config = _config(workspace, served, port) | {"engine": {"context_length": 0}}
    config["sampling"]["trajectory_tokens"] = 10**9
    said = complaint(run_step(workspace, "rollout", {"model": "models/other", "reward": reward}, config))
    assert (
        "sampling.trajectory_tokens: is more than the" in said and "tokens that the engine's cache has room for" in said
    )


def test_what_it_cannot_do_is_one_line(workspace, served):
    asked = {"model": "models/other", "reward": "http://127.0.0.1:1"}
    config = _config(workspace, served, free_port())
    wrong = config | {"environment": {"name": "maths"}}
    assert "did you mean math?" in complaint(run_step(workspace, "rollout", asked, wrong))
    wrong = config | {"agent": {"name": "sngle"}}
    assert "agent.name: is no agent" in complaint(run_step(workspace, "rollout", asked, wrong))
