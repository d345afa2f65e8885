"""What counts as the same when a step runs again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.contract.record import Record
from posttrain.errors import UserError
from posttrain.rerun import compare, find_record, next_name, surroundings

DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
BEFORE = Record(
    step="sft", package="steps.sft", run="demo", seed=0, inputs={}, config={},
    environment={"name": "cpu", "digest": DIGEST}, source={"revision": "r", "digest": DIGEST},
    outputs={"model": f"runs/demo/sft/model#{DIGEST}", "loss": 0.1, "card": "runs/demo/sft/card.md", "speed": 10.0},
    measured=["speed"], timings={}, host={"machine": "x86_64", "cores": 2},
)  # fmt: skip


def verdicts(**outputs: object) -> dict[str, str]:
    now = replace(BEFORE, run="demo-rerun-1", outputs=BEFORE.outputs | outputs)
    return {c.name: c.verdict for c in compare(BEFORE, now)}


def test_a_reference_is_the_same_when_its_digest_is_wherever_it_lies() -> None:
    assert verdicts(model=f"runs/demo-rerun-1/sft/model#{DIGEST}")["model"] == "same"
    assert verdicts(model=f"runs/demo/sft/model#{OTHER}")["model"] == "differs"


def test_a_number_is_compared_bit_for_bit() -> None:
    assert verdicts(loss=0.1)["loss"] == "same"
    assert verdicts(loss=0.1 + 2**-55)["loss"] == "differs"


def test_text_may_differ_in_the_runs_name_alone() -> None:
    assert verdicts(card="runs/demo-rerun-1/sft/card.md")["card"] == "same"
    assert verdicts(card="runs/demo-rerun-1/sft/other.md")["card"] == "differs"


def test_what_was_measured_is_shown_and_not_compared() -> None:
    assert verdicts(speed=99.0)["speed"] == "measured"


def test_an_output_that_is_gone_differs() -> None:
    now = replace(BEFORE, outputs={k: v for k, v in BEFORE.outputs.items() if k != "loss"})
    assert {c.name: c.verdict for c in compare(BEFORE, now)}["loss"] == "differs"


def test_the_surroundings_say_what_else_changed() -> None:
    now = replace(BEFORE, source={"revision": "r", "digest": OTHER})
    assert [c.name for c in surroundings(BEFORE, now) if c.verdict == "differs"] == ["source"]


def test_a_name_is_never_used_twice(tmp_path: Path) -> None:
    assert next_name(tmp_path, "demo") == "demo-rerun-1"
    (tmp_path / "runs" / "demo-rerun-1").mkdir(parents=True)
    (tmp_path / "checkpoints" / "demo-rerun-2").mkdir(parents=True)
    assert next_name(tmp_path, "demo") == "demo-rerun-3"


def test_a_long_name_is_cut_to_what_a_workflow_may_be_called(tmp_path: Path) -> None:
    long = "a" * 53 + "-" + "b" * 9
    assert next_name(tmp_path, long) == "a" * 53 + "-b-rerun-1"
    assert next_name(tmp_path, long[:54] + "-" * 9) == "a" * 53 + "-rerun-1"


def test_a_step_without_a_record_is_named_with_those_that_have_one(tmp_path: Path) -> None:
    BEFORE.write(tmp_path / "runs" / "demo" / "sft")
    assert find_record(tmp_path, "demo", "sft") == BEFORE
    with pytest.raises(UserError, match=r"STEP: left no record \(got 'stf'\); known: sft"):
        find_record(tmp_path, "demo", "stf")
    with pytest.raises(UserError, match="RUN: no such run"):
        find_record(tmp_path, "dmeo", "sft")
