"""The step export on a trained model: what a release holds, and that no wrong or damaged one becomes one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mlflow.tracking import MlflowClient
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain.contract import Ref, StepContext
from posttrain.contract.digest import digest_file, digest_tree
from posttrain.data.schema import ROWS as SCHEMA
from posttrain.errors import UserError
from posttrain.lake import write_table
from posttrain.serving.release import check_digest
from steps.export import Config, Inputs, Outputs
from steps.export.run import run as run_export
from tests.steps.conftest import outputs, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them

TRAINING = {
    "epochs": 1, "max_updates": 3, "batch_tokens": 256, "row_tokens": 128, "sequence_length": 128,
    "learning_rate": 1e-2, "checkpoint": {"every": 1},
}  # fmt: skip


@pytest.fixture(autouse=True)
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")


def taught(number: int) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": f"{number} + 1 = ?"},
        {"role": "assistant", "content": f"<answer>{number + 1}</answer>"},
    ]
    return {
        "id": f"t{number}", "source": "made", "messages": json.dumps(messages), "answer": str(number + 1),
        "verifier": "exact", "metadata": "{}", "tier": "easy", "tokens": 0,
    }  # fmt: skip


def train(workspace: Path, run: str, **settings: Any) -> dict[str, Any]:
    rows = pa.Table.from_pylist([taught(n) for n in range(40)], schema=SCHEMA)
    data = str(write_table(workspace, "lake/train.lance", rows))
    inputs = {"model": "models/other", "train": data, "validation": data}
    done = run_step(workspace, "sft", inputs, TRAINING | settings, run=run)
    assert done.returncode == 0, done.stderr
    return outputs(workspace, "sft", run) | {"train": data}


@pytest.fixture(scope="module")
def trained(workspace) -> dict[str, Any]:
    return train(workspace, "trained")


@pytest.fixture(scope="module")
def inputs(trained, made, evaluated) -> dict[str, str]:
    return {
        "model": trained["model"], "checkpoint": trained["checkpoint"], "base": "models/other",
        "train": trained["train"], "baseline_results": evaluated["results"], "results": made["results"],
        "verdict": "passed: accuracy 0.0% -> 100.0%",
    }  # fmt: skip


def releases(workspace: Path, run: str) -> list[Path]:
    """Everything below releases/ that an export of `run` may have left, staging directories included."""
    return [p for p in (workspace / "releases").glob("other/*") if run in p.name]


@pytest.fixture(scope="module")
def released(workspace, inputs) -> dict[str, Any]:
    """What the run `out` of the step gave."""
    done = run_step(workspace, "export", inputs, run="out", POSTTRAIN_TRACKING="mlflow")
    assert done.returncode == 0, done.stderr
    return outputs(workspace, "export", "out")


def test_a_release_is_whole_loads_tells_its_lineage_and_is_registered(workspace, inputs, evaluated, released):
    told = released
    release = Ref.parse(told["release"])
    directory = workspace / release.uri
    assert release.uri == "releases/other/out" and release.digest == digest_tree(directory)

    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "1"}], tokenize=False)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id

    manifest = json.loads((directory / "manifest.json").read_text())
    others = {p.name for p in directory.iterdir()} - {"manifest.json"}
    assert manifest["files"] == {name: digest_file(directory / name) for name in others}
    assert manifest["lineage"]["checkpoint"] == inputs["checkpoint"]
    card = (directory / "README.md").read_text()
    told_of = [inputs[name] for name in ("base", "train", "checkpoint", "results", "verdict")]
    for part in (*told_of, '"learning_rate": 0.01', "100.0% (86.2% to 100.0%)", f"{evaluated['accuracy']:.1%}"):
        assert part in card
    assert str(workspace) not in card + json.dumps(manifest)

    client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
    version = client.get_model_version(*told["registered"].split("/"))
    assert version.source == directory.as_uri() and version.tags["digest"] == release.digest
    experiment = client.get_experiment_by_name("posttrain")
    (tracked,) = client.search_runs([experiment.experiment_id], "tags.run = 'out'")
    assert tracked.data.tags["output.release"] == told["release"]


def test_exported_again_it_is_the_same_release_and_the_same_version(workspace, inputs, released):
    """The same run, as a rerun starts it."""
    (workspace / "runs/out/export/record.json").unlink()
    done = run_step(workspace, "export", inputs, run="out", POSTTRAIN_TRACKING="mlflow")
    assert done.returncode == 0, done.stderr
    assert outputs(workspace, "export", "out") == released


def export(workspace: Path, run: str, inputs: dict[str, str], **config: Any) -> Outputs:
    """The step's work in this process, which has torch loaded already."""
    context = StepContext(workspace, run, "export", seed=0)
    context.directory.mkdir(parents=True)
    return run_export(context, Inputs(**inputs), Config(**config))


def test_a_model_with_adapters_is_compared_after_they_were_merged(workspace, inputs):
    lora = train(workspace, "lora", lora={"rank": 2})
    changed = inputs | {name: lora[name] for name in ("model", "checkpoint")}
    assert export(workspace, "lora", changed, name="adapted").release.startswith("releases/adapted/lora#")


def test_another_model_than_the_checkpoints_is_refused(workspace, inputs):
    """One tensor of many, by a little: what a forgotten update of a tied or fused weight looks like."""
    odd = workspace / "runs/trained/odd"
    shutil.copytree(workspace / Ref.parse(inputs["model"]).uri, odd)
    tensors = load_file(odd / "model.safetensors")
    name = next(n for n in tensors if n.endswith("down_proj.weight"))
    tensors[name] = tensors[name] * 1.05
    save_file(tensors, odd / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="the exported model is not the checkpoint's"):
        export(workspace, "odd", inputs | {"model": "runs/trained/odd"})
    assert not releases(workspace, "odd")


@pytest.mark.parametrize("what", ["model", "checkpoint"])
def test_a_damaged_input_is_named_and_leaves_no_release(workspace, inputs, what):
    where = workspace / Ref.parse(inputs[what]).uri
    file = where / "model.safetensors" if what == "model" else next(where.glob("*.distcp"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    try:
        with pytest.raises(UserError, match="does not have its digest"):
            export(workspace, f"bad-{what}", inputs)
    finally:
        file.write_bytes(whole)
    assert not releases(workspace, f"bad-{what}")


def test_a_release_that_was_changed_is_named_by_its_file(workspace, released):
    ref = released["release"]
    directory = workspace / Ref.parse(ref).uri
    check_digest(directory, ref, field="serve.release")
    card = directory / "README.md"
    card.write_text(card.read_text() + "better than it was\n")
    with pytest.raises(UserError, match=r"README.md does not have its digest") as problem:
        check_digest(directory, ref, field="serve.release")
    assert problem.value.field == "serve.release"


def test_a_name_that_leads_elsewhere_is_refused():
    with pytest.raises(UserError, match="is no name of a directory"):
        Config(name="../../x")
