"""An iteration of updates: killed or not, live or again from the lake, the same weights; every sample has its end."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.contract.config import resolve
from posttrain.contract.record import read
from posttrain.contract.ref import Ref
from posttrain.errors import UserError
from posttrain.lakestream import EXPERIENCE, Stream
from posttrain.models.prepare import prepare
from posttrain.training.selection.select import Reason
from steps.rl import SPEC
from tests.processes import wait_until
from tests.steps.conftest import ENVIRONMENT, ROOT, command, complaint, run_step

GROUP, BATCH, UPDATES = 4, 2, 4
CONFIG: dict[str, Any] = {
    "updates": UPDATES, "groups_per_update": BATCH, "max_staleness": 1, "wait_seconds": 2.0,
    "learning": {"dtype": "float32", "learning_rate": 1e-3, "sequence_length": 64, "row_tokens": 128, "threads": 1,
                 "checkpoint": {"every": 1, "keep_last": 9}},
}  # fmt: skip


def newest(group: int) -> int:
    """One behind the version that the trainer has when the group's turn comes; every fifth is dropped."""
    return max(0, (group - group // 5) // BATCH - 1)


def rows(groups: int, *, seed: int = 0, version: Callable[[int], int] = newest) -> list[dict[str, Any]]:
    """`groups` whole groups of short random trajectories. Every fifth group has no spread, some samples no verdict."""
    rng = random.Random(seed)
    made = []
    for group in range(groups):
        for k in range(GROUP):
            prompt, answer = rng.randint(2, 6), rng.randint(1, 12)
            tokens = [rng.randint(3, 40) for _ in range(prompt + answer)]
            reward = 1.0 if group % 5 == 4 else None if (group, k) == (1, 2) else float(k % 2)
            made.append({
                "trajectory": f"g{group:03d}-{k}", "task": f"t{group}", "group": f"g{group:03d}", "messages": "[]",
                "tokens": tokens, "loss_mask": [0] * prompt + [1] * answer,
                "logprobs": [0.0] * prompt + [-rng.random() for _ in range(answer)],
                "policy_versions": [{"version": version(group), "start": prompt, "end": prompt + answer}],
                "reward": reward, "status": "finished" if reward is not None else "failed", "group_rows": GROUP,
            })  # fmt: skip
    return made


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rl")
    prepare(root, "tiny", name="base", seed=0)
    return root


def stream(workspace: Path, name: str, groups: int, **how: Any) -> str:
    made = Stream.create(workspace / "lake" / f"{name}.lance", EXPERIENCE).producer("sampler")
    for number, start in enumerate(range(0, groups * GROUP, GROUP)):  # a commit for each group, as the sampler does
        made.append(rows(groups, **how)[start : start + GROUP], number + 1)
    return f"lake/{name}.lance"


def iterate(workspace: Path, run: str, **inputs: str) -> dict[str, Any]:
    done = run_step(workspace, "rl", {"model": "models/base", **inputs}, CONFIG, run=run)
    assert done.returncode == 0, done.stderr
    found = read(workspace / "runs" / run / "rl")
    assert found is not None
    return found.outputs


def digests(outputs: dict[str, Any]) -> list[str | None]:
    return [Ref.parse(outputs[name]).digest for name in ("model", "checkpoint", "rows")]


@pytest.fixture(scope="module")
def first(workspace: Path) -> dict[str, Any]:
    return iterate(workspace, "first", experience=stream(workspace, "experience", 2 * UPDATES * BATCH + 5))


def test_every_sample_is_trained_on_or_left_out_for_one_reason(workspace: Path, first: dict[str, Any]) -> None:
    entries = [json.loads(line) for line in (workspace / "runs/first/rl/rows.jsonl").read_text().splitlines()]
    assert [entry["version"] for entry in entries] == list(range(1, UPDATES + 1))
    trained = [name for entry in entries for name in entry["trained"]]
    left = {name: reason for entry in entries for name, reason in entry["left_out"].items()}
    assert len(set(trained)) == len(trained) == first["samples_trained"] and not set(trained) & set(left)
    groups = first["groups_trained"] + first["groups_dropped"]
    assert first["groups_trained"] == UPDATES * BATCH
    assert set(trained) | set(left) == {row["trajectory"] for row in rows(groups)}  # the first ones, none between
    assert left["g001-2"] == Reason.unscored and set(left.values()) <= set(Reason)
    assert Counter(left.values())[Reason.no_spread] == GROUP * sum(group % 5 == 4 for group in range(groups))


def test_computed_again_from_the_lake_it_is_the_same(workspace: Path, first: dict[str, Any]) -> None:
    """After compaction, too, and in a stream that has grown."""
    uri = "lake/experience.lance"
    Stream.open(workspace / uri).maintain()
    assert digests(iterate(workspace, "again", experience=uri)) == digests(first)


def test_the_next_iteration_goes_on_from_the_place_of_the_one_before(workspace: Path, first: dict[str, Any]) -> None:
    second = iterate(workspace, "second", experience="lake/experience.lance", checkpoint=first["checkpoint"])
    assert second["version"] == 2 * UPDATES and second["groups_trained"] == 2 * UPDATES * BATCH
    names = [
        name for run in ("first", "second")
        for line in (workspace / "runs" / run / "rl/rows.jsonl").read_text().splitlines()
        for name in [*json.loads(line)["trained"], *json.loads(line)["left_out"]]
    ]  # fmt: skip
    assert len(set(names)) == len(names)
    assert digests(second) != digests(first)


def test_killed_at_any_update_and_started_again_it_is_the_same(workspace: Path, first: dict[str, Any]) -> None:
    for killed_at in [random.randint(1, UPDATES - 1)]:
        run = f"killed-{killed_at}"
        inputs = {"model": "models/base", "experience": "lake/experience.lance"}
        process = subprocess.Popen(
            command(workspace, "rl", inputs, CONFIG, run=run, step="rl"), cwd=ROOT, env=ENVIRONMENT,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        checkpoint = workspace / "checkpoints" / run / "rl" / f"step-{killed_at:06d}"
        wait_until(lambda: checkpoint.exists() or process.poll() is not None, "no checkpoint", 60, every=0.001)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert digests(iterate(workspace, run, experience="lake/experience.lance")) == digests(first)
        curve = (workspace / "runs" / run / "rl/metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in curve] == list(range(1, UPDATES + 1))


def test_what_is_older_than_the_bound_is_dropped(workspace: Path) -> None:
    """All of version 0: from the third update on everything is stale, and nobody makes anything else."""
    uri = stream(workspace, "old", 12, version=lambda group: 0)
    done = run_step(workspace, "rl", {"model": "models/base", "experience": uri}, CONFIG, run="old")
    assert "experience: is out of samples: no group came for 2 s" in complaint(done)
    entries = [json.loads(line) for line in (workspace / "runs/old/rl/rows.jsonl").read_text().splitlines()]
    assert [entry["version"] for entry in entries] == [1, 2]


def test_a_sample_that_is_too_long_is_one_line(workspace: Path) -> None:
    uri = stream(workspace, "long", 3)
    short = CONFIG | {"learning": CONFIG["learning"] | {"sequence_length": 5}}
    said = complaint(run_step(workspace, "rl", {"model": "models/base", "experience": uri}, short, run="long"))
    assert "tokens, more than learning.sequence_length (5)" in said


def test_what_makes_no_sense_is_one_line(workspace: Path) -> None:
    for config, expected in (
        ({"objective": {"name": "grop"}}, "is no objective"),
        ({"objective": {"name": "dpo"}}, "learns from no reward"),
        ({"learning": {"schedule": "cosine"}}, "learning.schedule: has no meaning"),
        ({"learning": {"epochs": 2}}, "learning.epochs: unknown key"),
        ({"selection": {"groups": 3}}, "set groups_per_update"),
    ):
        with pytest.raises(UserError, match=expected):
            resolve(SPEC.Config, CONFIG | config, where="rl")
    asked = {"model": "models/base", "experience": "lake/experience.lance"}
    config = CONFIG | {"objective": {"kl": {"coefficient": 0.1}}}
    assert "rl.reference: is needed for the KL price" in complaint(
        run_step(workspace, "rl", asked, config, run="wrong")
    )
