"""A model directory is checked from its headers: what is missing or damaged is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from posttrain.errors import UserError
from posttrain.models import tiny
from posttrain.models.config import TinyShape
from posttrain.models.layout import INDEX, TEMPLATE, check_directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "whole"
    tiny.build(directory, TinyShape(), seed=0)
    return directory


@pytest.fixture
def model(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "m"))


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_facts_agree_with_the_weights(model):
    facts = check_directory(model, field="f")
    stored = load_file(model / "model.safetensors")
    assert facts.shapes == {name: tuple(tensor.shape) for name, tensor in stored.items()}
    assert facts.parameters == sum(tensor.numel() for tensor in stored.values())
    assert facts.context_length == 512


def test_shards_are_found_by_their_index(model):
    tensors = load_file(model / "model.safetensors")
    whole = check_directory(model, field="f").shapes
    (model / "model.safetensors").unlink()
    names = {name: f"part-{n % 2}.safetensors" for n, name in enumerate(sorted(tensors))}
    for part in set(names.values()):
        save_file({name: tensors[name] for name in names if names[name] == part}, model / part)
    (model / INDEX).write_text(json.dumps({"weight_map": names}))
    assert check_directory(model, field="f").shapes == whole
    (model / "part-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"f: holds no part-1.safetensors"):
        check_directory(model, field="f")


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda m: shutil.rmtree(m), "no such model directory"),
        (lambda m: (m / "config.json").unlink(), "holds no config.json"),
        (lambda m: cut(m / "config.json", 9), "config.json.*is damaged|is damaged.*config.json"),
        (lambda m: edit(m / "config.json", quantization_config={"bits": 4}), "quantized"),
        (lambda m: (m / "model.safetensors").unlink(), "holds no model.safetensors .*saved as safetensors"),
        (lambda m: cut(m / "model.safetensors", 5), "is damaged.*model.safetensors"),
        (lambda m: cut(m / "model.safetensors", 500), "is damaged.*model.safetensors"),
        (lambda m: cut(m / "model.safetensors", 600_000), "is damaged.*model.safetensors"),
        (lambda m: (m / "model.safetensors").write_bytes(b"\x08" + bytes(7) + b"no json!"), "is damaged"),
        (lambda m: (m / "tokenizer.json").unlink(), "holds no tokenizer"),
        (lambda m: (m / TEMPLATE).unlink(), "has no chat template.*prepare_model.chat_template"),
    ],
)
def test_each_fault_is_one_clear_line(model, harm, says):
    harm(model)
    with pytest.raises(UserError, match=rf"^f: .*({says})") as raised:
        check_directory(model, field="f")
    assert "\n" not in str(raised.value)


def test_a_template_given_elsewhere_or_in_the_tokenizers_settings_will_do(model):
    (model / TEMPLATE).unlink()
    check_directory(model, field="f", template_given=True)
    edit(model / "tokenizer_config.json", chat_template="{{ messages }}")
    check_directory(model, field="f")
