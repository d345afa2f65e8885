"""Packing a file or directory as Argo does (gzipped tar, zip, or as it is), and unpacking it where it is wanted.

Invariant: whatever an archive holds, nothing is written outside the directory that it is unpacked in.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
ENDINGS = {"tar": ".tgz", "zip": ".zip", "none": ""}


class ArtifactError(Exception):
    """One line that says why an artifact could not be kept or fetched."""


def form_of(artifact: JSON) -> str:
    """tar, zip or none: how the artifact is to be packed."""
    given = artifact.get("archive") or {}
    return next((form for form in ("none", "zip", "tar") if form in given), "tar")


def pack(source: Path, artifact: JSON, scratch: Path) -> Path:
    """`source` as it is to be kept: itself, or an archive made in `scratch`, whose root has the source's name."""
    form, packed = form_of(artifact), scratch / "packed"
    if form == "none":
        return source
    if form == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
            for path in [source, *sorted(source.rglob("*"))]:
                out.write(path, posixpath.join(source.name, path.relative_to(source).as_posix()).removesuffix("/."))
        return packed
    level = ((artifact.get("archive") or {}).get("tar") or {}).get("compressionLevel")
    if level == 0:
        with tarfile.open(packed, "w") as plain:
            plain.add(source, arcname=source.name)
    else:
        with tarfile.open(packed, "w:gz", compresslevel=6 if level in (None, -1) else int(level)) as zipped:
            zipped.add(source, arcname=source.name)
    return packed


def unpack(brought: Path, target: Path, artifact: JSON, scratch: Path) -> None:
    """Put what was kept at `target`, as the artifact's `archive` says; where it says nothing the file itself tells.

    An archive's only entry becomes `target`, several become what the directory `target` holds.
    """
    form = "none" if brought.is_dir() else form_of(artifact) if artifact.get("archive") else _guess(brought)
    if form == "none":
        _put(brought, target)
        return
    inside = scratch / "inside"
    inside.mkdir()
    try:
        if form == "zip":
            with zipfile.ZipFile(brought) as zipped:
                zipped.extractall(inside)  # it drops `..` and leading slashes by itself
        else:
            with tarfile.open(brought) as tar:
                tar.extractall(inside, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as problem:
        raise ArtifactError(f"cannot be unpacked: {problem}") from None
    entries = list(inside.iterdir())
    _put(entries[0] if len(entries) == 1 else inside, target)


def _guess(path: Path) -> str:
    if tarfile.is_tarfile(path):
        return "tar"
    return "zip" if zipfile.is_zipfile(path) else "none"


def _put(source: Path, target: Path) -> None:
    """Move `source` to `target`; a directory that already stands there (a mount, say) is filled."""
    if target.is_dir() and source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif target.is_dir():
        raise ArtifactError(f"{target.name} is a directory, the artifact a file")
    else:
        shutil.move(source, os.fspath(target))
