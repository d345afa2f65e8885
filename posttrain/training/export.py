"""The trained model as a Hugging Face directory: safetensors, and every other file of the model it came from.

Invariant: configuration (but for the type of the weights), tokenizer, chat template and generation config are the
starting model's own, so that what is evaluated before and after differs by weights alone; nothing in the
directory tells of paths or times.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from posttrain.contract.digest import digest_tree
from posttrain.contract.files import staged_directory, write_json
from posttrain.models.prepare import MADE_FROM
from posttrain.training.model import DTYPES, TrainedModel

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".onnx", ".ot"}
_ABOUT_THE_SOURCE = {"README.md", MADE_FROM}


def export(model: TrainedModel, source: Path, target: Path, *, dtype: str) -> str:
    """Write the model to `target` and give the digest of the directory. The model is used up.

    `dtype` auto is the type of the model in `source`. Raises OSError with nothing left behind.
    """
    config = json.loads((source / "config.json").read_text())
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    config[key] = str(config.get(key) or "float32") if dtype == "auto" else dtype
    with staged_directory(target) as staging:
        model.finish(DTYPES[config[key]]).save_pretrained(staging)
        for file in source.iterdir():
            if file.is_file() and not _is_weights(file) and file.name not in _ABOUT_THE_SOURCE:
                shutil.copyfile(file, staging / file.name)
        write_json(staging / "config.json", config)
        digest = digest_tree(staging)
    return digest


def _is_weights(file: Path) -> bool:
    return file.suffix in _WEIGHTS or file.name.endswith(".index.json")
