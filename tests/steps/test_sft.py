"""The step `sft` from its command line: what it leaves behind, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain.contract.digest import digest_tree
from tests.training.support import SmallDisk, make_workspace, sums, table


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_workspace(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def here(prepared, tmp_path):
    return prepared.fork(tmp_path / "w")


def left_behind(here, run: str) -> set[str]:
    directory = here.path / "runs" / run / "sft"
    return {path.name for path in directory.iterdir()} & {"model", "record.json", "outputs"}


def test_it_learns_and_exports_a_model_that_loads(here):
    code, said = here.run("r", {"epochs": 6, "eval_every": 8, "dtype": "bfloat16"})
    assert code == 0, said
    outputs = here.outputs("r")
    validation = [value for _, name, value in here.curve("r") if name == "validation_loss"]
    assert outputs["validation_loss"] == validation[-1] < validation[0] - 0.5
    assert outputs["tokens_per_second"] > 0
    where, _, digest = outputs["model"].partition("#")
    model = AutoModelForCausalLM.from_pretrained(here.path / where)
    assert model.dtype == torch.float32, "as the model came"
    assert digest_tree(here.path / where) == digest
    source = here.path / "models" / "tiny"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (here.path / where / name).read_bytes() == (source / name).read_bytes()
    assert AutoTokenizer.from_pretrained(here.path / where).chat_template
    assert (here.path / "outputs" / "r" / "model").read_text() == outputs["model"]


def test_what_is_exported_is_what_was_evaluated_and_saved(here):
    assert here.run("r", {"dtype": "float32"})[0] == 0
    from posttrain.training.checkpoints import load, read

    outputs = here.outputs("r")
    model = AutoModelForCausalLM.from_pretrained(here.path / outputs["model"].partition("#")[0])
    saved = read(here.path / outputs["checkpoint"].partition("#")[0])
    weights = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    load(saved, {"weights": weights})
    assert saved.digest == outputs["checkpoint"].partition("#")[2]
    assert all(torch.equal(weights[name], parameter) for name, parameter in model.named_parameters())


def test_adapters_are_merged_into_a_model_of_the_same_names(here):
    assert here.run("r", {"lora": {"rank": 4}, "export_dtype": "bfloat16"})[0] == 0
    where = here.path / here.outputs("r")["model"].partition("#")[0]
    trained, source = (AutoModelForCausalLM.from_pretrained(p) for p in (where, here.path / "models" / "tiny"))
    assert trained.state_dict().keys() == source.state_dict().keys()
    assert trained.dtype == torch.bfloat16 and json.loads((where / "config.json").read_text())["dtype"] == "bfloat16"


def test_started_again_it_finds_its_outputs(here):
    first = here.run("r", {})[1]
    assert "updates done" not in first
    code, said = here.run("r", {})
    assert code == 0 and "already ended with this request" in said


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"learning_rat": 1e-4}, "error: sft: sft.learning_rat: unknown key; did you mean learning_rate?"),
        ({"epochs": "many"}, "error: sft: sft.epochs: "),
        ({"learning_rate": 0.0}, "error: sft: learning_rate: must be greater than 0 (got 0.0)"),
        ({"row_tokens": 32}, "error: sft: row_tokens: is less than sequence_length (64)"),
        ({"schedule": "linear"}, "error: sft: schedule: is not known (got 'linear'); write cosine or constant"),
        ({"early_stop": {"patience": 2}}, "error: sft: early_stop.patience: needs eval_every"),
        ({"lora": {"rank": 2, "targets": ["nope"]}}, "error: sft: lora.targets: Target modules"),
        ({"sequence_length": 8}, "error: sft: sft.train: leaves no document of its 96 rows (overlong: drop: 96)"),
        ({"sequence_length": 16, "overlong": "error"}, "error: sft: sft.train: row sum-1-"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_line_and_leaves_nothing(here, config, line):
    code, said = here.run("r", config)
    assert code == 2, said
    assert said.splitlines()[-1].startswith(line)
    assert "Traceback" not in said
    assert left_behind(here, "r") == set() if (here.path / "runs" / "r").exists() else True


def test_no_data_is_one_line(here):
    empty = table(here.path, "empty", sums(1, seed=1)).partition("@")[0]
    import lance

    lance.dataset(here.path / empty).delete("true")
    code, said = here.run("r", {}, train=empty)
    assert code == 2 and said.splitlines()[-1].startswith("error: sft: sft.train: holds no rows")
    code, said = here.run("r", {}, train="lake/nowhere.lance")
    assert code == 2 and said.splitlines()[-1].startswith("error: sft: sft.train: no such table in the lake")


def test_long_conversations_are_dropped_or_cut_and_counted(here):
    code, said = here.run("dropped", {"sequence_length": 20})
    assert code == 0 and "rows: overlong: drop" in said
    code, said = here.run("cut", {"sequence_length": 20, "overlong": "truncate"})
    assert code == 0 and "rows: overlong: truncate" in said
    assert here.outputs("dropped")["tokens"] < here.outputs("cut")["tokens"]


def test_a_model_without_a_chat_template_is_one_line(here):
    (here.path / "models" / "tiny" / "chat_template.jinja").unlink()
    code, said = here.run("r", {}, model="models/tiny")
    assert code == 2
    assert said.splitlines()[-1].startswith("error: sft: sft.model: has no chat template")
    assert left_behind(here, "r") == set()


def test_a_model_that_is_not_there_or_damaged_is_one_line(here):
    code, said = here.run("r", {}, model="models/none")
    assert code == 2 and "error: sft: sft.model: does not exist in the workspace" in said
    weights = here.path / "models" / "tiny" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, said = here.run("r", {}, model="models/tiny")
    assert code == 2, said
    assert said.splitlines()[-1].startswith("error: sft: sft.model: cannot be loaded")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_line_and_the_older_checkpoint_stays(here):
    """The disk takes the first checkpoint and not the second; with room again the step goes on from the first."""
    config = {"epochs": 2, "checkpoint": {"every": 4, "keep_last": 9}}
    assert here.run("steady", config)[0] == 0
    checkpoints = here.path / "checkpoints"
    size = sum(f.stat().st_size for f in (checkpoints / "steady" / "sft" / "step-000004").iterdir())
    disk = SmallDisk(checkpoints, int(size * 1.5), here.path / "kept")
    code, said = here.run("r", config, disk=disk)
    assert code == 1, said
    last = said.splitlines()[-1]
    assert last.startswith("error: sft: ") and "step-000008: the disk is full" in last
    assert "Traceback" not in said
    assert left_behind(here, "r") == set()
    assert sorted(path.name for path in (disk.kept / "r" / "sft").iterdir()) == ["latest", "step-000004"]

    shutil.copytree(disk.kept / "r", checkpoints / "r")
    code, said = here.run("r", config)
    assert code == 0 and "resuming from" in said and "4 of 16 updates done" in said
    assert here.curve("r") == here.curve("steady")
    assert here.outputs("r")["model"].partition("#")[2] == here.outputs("steady")["model"].partition("#")[2]
