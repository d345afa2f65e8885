"""The step evaluate as a process: scores of a real engine, and one line for every mistake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from posttrain.data.schema import ROWS as SCHEMA
from posttrain.evaluation.schema import from_table
from posttrain.lake import open_table, write_table
from posttrain.lakestream import Stream
from tests.steps.conftest import ROWS, complaint, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them


def results_of(workspace: Path, ref: str):
    return from_table(open_table(workspace, ref, field="results", verify=True).to_table(), field="results")


def test_a_model_that_gives_the_answers_scores_them_all(workspace, made):
    results, how = results_of(workspace, made["results"])
    assert len(results) == ROWS and all(r.correct for r in results)
    assert len({r.id for r in results}) == ROWS
    assert how.sampling.max_tokens == 8 and all(0 < r.tokens <= 8 for r in results)


def test_samples_depend_on_the_prompt_and_not_on_the_order_of_asking(made):
    assert made["drawn"] == made["drawn_in_another_order"]
    assert all(len(set(texts)) == 3 for texts in made["drawn"].values())


def test_another_model_scores_less_and_the_step_tells_it(workspace, evaluated):
    results, _ = results_of(workspace, evaluated["results"])
    summary = json.loads((workspace / evaluated["summary"]).read_text())
    assert evaluated["rows"] == summary["rows"] == ROWS
    assert evaluated["accuracy"] == sum(r.correct for r in results) / ROWS < 0.5
    assert evaluated["accuracy_low"] <= evaluated["accuracy"] <= evaluated["accuracy_high"] < 1
    assert evaluated["mean_tokens"] == sum(r.tokens for r in results) / ROWS
    assert set(summary["tiers"]) == {"easy", "medium", "hard"}
    progress = (workspace / "runs/r/evaluate/progress.jsonl").read_text().splitlines()
    last = json.loads(progress[-1])
    assert (last["task"], last["done"]) == ("evaluate", ROWS) and last["accuracy"] == evaluated["accuracy"]


def broken(workspace: Path, name: str) -> Path:
    target = workspace / "models" / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(workspace / "models/able", target)
    return target


@pytest.mark.parametrize("fault", ["missing", "cut", "no template"])
def test_a_model_that_cannot_be_sampled_is_one_line(workspace, made, fault):
    name = fault.replace(" ", "-")
    if fault == "cut":
        weights = broken(workspace, name) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
    if fault == "no template":
        (broken(workspace, name) / "chat_template.jinja").unlink()
    done = run_step(workspace, "evaluate", {"model": f"models/{name}", "data": made["data"]}, run=name)
    assert complaint(done).startswith("error: evaluate: evaluate.model: ")
    said = {"missing": "does not exist", "cut": "is damaged", "no template": "has no chat template"}
    assert said[fault] in done.stderr
    assert not (workspace / "runs" / name / "evaluate/results.lance").exists()


def test_an_empty_set_is_one_line(workspace):
    empty = str(write_table(workspace, "lake/empty.lance", pa.Table.from_pylist([], schema=SCHEMA)))
    done = run_step(workspace, "evaluate", {"model": "models/able", "data": empty}, run="empty")
    assert "evaluate.data: the evaluation set is empty" in complaint(done)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sampling": {"samples": 4}}, "sampling.samples: would be equal at temperature 0"),
        ({"sampling": {"max_tokens": "x"}}, "evaluate.sampling.max_tokens"),
        ({"sampling": {"max_token": 3}}, "did you mean sampling.max_tokens?"),
        ({"engine": {"dtype": "int3"}}, "engine.dtype"),
        ({"answer": {"take": "best"}}, "answer.take"),
    ],
)
def test_a_wrong_setting_is_one_line(workspace, config, said):
    done = run_step(workspace, "evaluate", {"model": "models/able", "data": "lake/set.lance"}, config, run="wrong")
    assert said in complaint(done)


def test_the_history_has_each_evaluation_once_however_often_the_step_runs(workspace, evaluated, made):
    config = {"sampling": {"max_tokens": 8}, "engine": {"dtype": "float32"}}
    record = workspace / "runs/r/evaluate/record.json"
    kept = record.read_text()
    record.unlink()  # as if it had died before it could write it
    done = run_step(workspace, "evaluate", {"model": "models/other", "data": made["data"]}, config)
    assert done.returncode == 0, done.stderr
    again = {k: v for k, v in json.loads(record.read_text())["outputs"].items() if k != "seconds"}
    assert again == {k: v for k, v in json.loads(kept)["outputs"].items() if k != "seconds"}
    seen = Stream.open(workspace / "lake/evaluations.lance").snapshot().to_table(["run", "model", "correct"])
    assert set(seen["model"].to_pylist()) == {"models/other"} and seen.num_rows == ROWS
    assert sum(seen["correct"].to_pylist()) == evaluated["accuracy"] * ROWS
