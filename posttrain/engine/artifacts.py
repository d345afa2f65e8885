"""Artifacts: files and directories kept between pods, in the engine's own store, in S3, or written out raw.

A location is an Argo artifact with one of these keys:

    raw: {data}           the content itself
    s3: {key}             a path in the engine's own store, a directory
    s3: {bucket, key, …}  see s3.py; credentials already looked up

Invariants: an object stands under its key in the store only when it is whole and on disk; no key
leads out of the store; credentials are in no result.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from pathlib import Path
from typing import Any

from posttrain.contract.files import sync_directory
from posttrain.engine import s3
from posttrain.engine.archives import ENDINGS, ArtifactError, form_of, pack, unpack

__all__ = ["ArtifactError", "delete", "fetch", "save"]

JSON = dict[str, Any]


def save(source: str, artifact: JSON, *, store: str | None = None, prefix: str = "") -> JSON:
    """Keep the file or directory `source`; returns the artifact as an output carries it, with its location.

    Without a location of its own the artifact goes to the store as `prefix/NAME`, with the archive's ending.
    """
    location = artifact.get("s3") or {}
    if not (location.get("bucket") or location.get("key")):
        location = {"key": posixpath.join(prefix, artifact["name"] + ENDINGS[form_of(artifact)])}
    with tempfile.TemporaryDirectory(prefix=".keep-", dir=_root(store) if store else None) as scratch:
        packed = pack(Path(source), artifact, Path(scratch))
        if location.get("bucket"):
            s3.upload(location, packed)
        else:
            _keep(packed, _in_store(store, location["key"]), Path(scratch))
    kept = {k: v for k, v in artifact.items() if k not in ("from", "fromExpression", "optional")}
    return {**kept, "s3": {k: v for k, v in location.items() if k not in s3.CREDENTIALS}}


def fetch(artifact: JSON, destination: str, *, store: str | None = None) -> None:
    """Put the artifact at `destination`, unpacked as its `archive` says (found out where it says nothing).

    Raises ArtifactError where nothing stands under its key. `subPath` is looked for below the key.
    """
    target = Path(destination)
    target.parent.mkdir(parents=True, exist_ok=True)
    if "raw" in artifact:
        target.write_text(artifact["raw"].get("data", ""), encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory(prefix=".artifact-", dir=target.parent) as scratch:
            unpack(_bring(artifact, Path(scratch), store), target, artifact, Path(scratch))
    if artifact.get("mode") is not None:
        below = target.rglob("*") if artifact.get("recurseMode") and target.is_dir() else ()
        for path in (target, *below):
            path.chmod(int(artifact["mode"]))


def delete(artifact: JSON, *, store: str | None = None) -> None:
    """Remove what stands under the artifact's key; nothing happens where nothing does."""
    location = artifact.get("s3") or {}
    if location.get("bucket"):
        s3.delete(location)
    elif location:
        path = _in_store(store, location.get("key", ""))
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _bring(artifact: JSON, scratch: Path, store: str | None) -> Path:
    """A copy of the object under the artifact's key, in `scratch`."""
    copy = scratch / "brought"
    location, below = artifact.get("s3"), artifact.get("subPath") or ""
    if not location:
        raise ArtifactError("has no location that the engine carries (raw, s3)")
    key = posixpath.join(location.get("key", ""), below) if below else location.get("key", "")
    if location.get("bucket"):
        s3.download({**location, "key": key}, copy)
    else:
        kept = _in_store(store, key)
        if not kept.exists():
            raise ArtifactError(s3.MISSING)
        _copy(kept, copy)
    return copy


def _keep(packed: Path, final: Path, scratch: Path) -> None:
    copy = scratch / "copy"
    _copy(packed, copy)
    for path in (copy, *copy.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.is_dir():
        shutil.rmtree(final)
    os.replace(copy, final)
    sync_directory(final.parent)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True) if source.is_dir() else shutil.copy2(source, target)


def _root(store: str) -> str:
    os.makedirs(store, exist_ok=True)
    return store


def _in_store(store: str | None, key: str) -> Path:
    if store is None:
        raise ArtifactError("there is no artifact store")
    path = Path(os.path.normpath(os.path.join(store, key.lstrip("/"))))
    if Path(store) not in path.parents:
        raise ArtifactError(f"key {key!r} leads out of the artifact store")
    return path
