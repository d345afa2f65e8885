"""A release: a Hugging Face directory with its model card and a manifest of every file's digest and of its lineage.

    releases/NAME/RUN/    config.json, *.safetensors, tokenizer, chat template, generation_config.json,
                          README.md (the card), manifest.json (last)

Invariants: the directory takes its name when it is whole and was checked; nothing in it tells of a time or an
absolute path, so that the same inputs give the same digest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from posttrain.contract.digest import digest_file, digest_tree
from posttrain.contract.files import write_atomic, write_json
from posttrain.contract.ref import Ref
from posttrain.errors import UserError

MANIFEST, CARD, GENERATION, SCHEMA = "manifest.json", "README.md", "generation_config.json", 1
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def assemble(model: Path, target: Path, card: str) -> None:
    """Copy the trained model's files into the empty directory `target` and put the card beside them."""
    for file in sorted(model.iterdir()):
        if file.is_file():
            shutil.copyfile(file, target / file.name)
    if not (target / GENERATION).is_file():
        config = json.loads((target / "config.json").read_text())
        write_json(target / GENERATION, {key: config[key] for key in _TOKENS if config.get(key) is not None})
    write_atomic(target / CARD, card)


def write_manifest(target: Path, lineage: dict[str, Any]) -> str:
    """Write the manifest of all files in `target`, last of all, and return the digest of the whole directory."""
    files = {p.relative_to(target).as_posix(): digest_file(p) for p in sorted(target.rglob("*")) if p.is_file()}
    write_json(target / MANIFEST, {"schema": SCHEMA, "files": files, "lineage": lineage})
    return digest_tree(target)


def check_digest(directory: Path, ref: Ref | str, *, field: str) -> None:
    """Raise UserError naming `field` where the directory is not the one that `ref` names by its digest.

    A release tells by its manifest which file it is. A ref without a digest says nothing.
    """
    expected = Ref.parse(ref, field=field).digest if isinstance(ref, str) else ref.digest
    if expected is None or digest_tree(directory) == expected:
        return
    odd = next(iter(_changed(directory)), None)
    what = f"is damaged or was changed: {odd} does not have its digest" if odd else "does not have its digest"
    raise UserError(what, field=field, value=str(ref), remedy="run the step that made it again")


def _changed(directory: Path) -> list[str]:
    try:
        files: dict[str, str] = json.loads((directory / MANIFEST).read_text())["files"]
    except (FileNotFoundError, ValueError, KeyError):
        return []
    return [n for n, d in files.items() if not (directory / n).is_file() or digest_file(directory / n) != d]
