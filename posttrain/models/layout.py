"""What a Hugging Face model directory must hold, checked from its headers without loading a weight.

Invariant: nothing heavy is imported, so that a directory is looked at before a workflow starts.
The safetensors format: 8 bytes with the header's length, a JSON header with the type, shape and
byte range of every tensor, then the tensors, without a gap.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.errors import UserError

INDEX = "model.safetensors.index.json"
TEMPLATE = "chat_template.jinja"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")


@dataclass(frozen=True)
class ModelFacts:
    """`shapes` maps each stored tensor to its shape; `context_length` is 0 where the config names none."""

    shapes: dict[str, tuple[int, ...]]
    context_length: int

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())


def check_directory(directory: Path, *, field: str, template_given: bool = False) -> ModelFacts:
    """Look at a model directory: configuration, whole weights, tokenizer, chat template.

    Raises UserError naming `field` for the first thing that is missing or damaged. With
    `template_given` a chat template comes from elsewhere.
    """
    if not directory.is_dir():
        raise UserError("no such model directory", field=field, value=str(directory), remedy="give the path of one")
    config = _json(directory / "config.json", field)
    if "quantization_config" in config:
        raise UserError(
            "holds quantized weights, which cannot be trained", field=field, value=str(directory),
            remedy="give a model with plain weights",
        )  # fmt: skip
    shapes = {name: shape for file in weight_files(directory, field=field) for name, shape in _shapes(file, field)}
    if not any((directory / name).is_file() for name in _TOKENIZERS):
        raise UserError("holds no tokenizer", field=field, value=str(directory), remedy="put tokenizer.json beside it")
    if not template_given and not has_template(directory, field=field):
        raise UserError(
            "the model has no chat template", field=field, value=str(directory),
            remedy="name a Jinja file in prepare_model.chat_template",
        )  # fmt: skip
    return ModelFacts(shapes, int(config.get("max_position_embeddings") or 0))


def weight_files(directory: Path, *, field: str) -> list[Path]:
    """The safetensors files of the model, those that the index names or the only one."""
    if (directory / INDEX).is_file():
        names = sorted(set(_json(directory / INDEX, field).get("weight_map", {}).values()))
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (directory / name).is_file():
            raise UserError(
                f"holds no {name}", field=field, value=str(directory), remedy="give a model saved as safetensors"
            )
    return [directory / name for name in names]


def has_template(directory: Path, *, field: str) -> bool:
    if (directory / TEMPLATE).is_file():
        return True
    settings = directory / "tokenizer_config.json"
    return settings.is_file() and bool(_json(settings, field).get("chat_template"))


def _shapes(file: Path, field: str) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a file's tensors; UserError where the file is cut short or its header is no header."""
    damaged = UserError("is damaged", field=field, value=str(file), remedy="fetch or copy the model again")
    size = file.stat().st_size
    with open(file, "rb") as source:
        start = source.read(8)
        if len(start) < 8 or (length := struct.unpack("<Q", start)[0]) > size - 8:
            raise damaged
        try:
            header: dict[str, Any] = json.loads(source.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
            shapes = [(name, tuple(entry["shape"])) for name, entry in tensors.items()]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise damaged from None
    if size != 8 + length + end:
        raise damaged
    return shapes


def _json(file: Path, field: str) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise UserError(f"holds no {file.name}", field=field, value=str(file.parent)) from None
    except ValueError as problem:
        raise UserError(f"is damaged: {problem}", field=field, value=str(file)) from None
    if not isinstance(value, dict):
        raise UserError("is damaged: holds no mapping", field=field, value=str(file))
    return value
