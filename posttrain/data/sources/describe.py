"""What a source was, for the data card: the generator with its version and seed, or files with their digests."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from posttrain.contract.digest import digest_file, digest_tree
from posttrain.data.config import ROOT, Source
from posttrain.data.paths import find
from posttrain.data.schema import to_json
from posttrain.data.sources import source_seed


def describe(source: Source, index: int, *, workspace: Path, seed: int) -> dict[str, Any]:
    common = {"name": source.label, "kind": source.kind, "into": source.into}
    if source.kind == "reasoning_gym":
        own = source_seed(seed, index) if source.seed is None else source.seed
        what = f"reasoning-gym {version('reasoning-gym')} {source.dataset} {to_json(source.parameters)} seed {own}"
        return common | {"what": what}
    if source.kind == "hf_disk":
        files = {source.path: digest_tree(workspace / source.path)}
    else:
        files = {f.name: digest_file(f) for f in find(source.path, workspace, field=f"{ROOT}.sources[{index}].path")}
    return common | {"what": source.path, "files": files}
