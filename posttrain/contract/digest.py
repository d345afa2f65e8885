"""Digests of files, directories and plain values. All are written `sha256:<64 hex digits>`."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def digest_bytes(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def canonical(value: Any) -> str:
    """A JSON value as text: the same for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_value(value: Any) -> str:
    """Digest of a JSON value's canonical text."""
    return digest_bytes(canonical(value).encode())


def digest_file(path: Path) -> str:
    with open(path, "rb") as source:
        return "sha256:" + hashlib.file_digest(source, "sha256").hexdigest()


def digest_tree(root: Path, *, ignore: frozenset[str] = frozenset()) -> str:
    """Digest of every file below `root`: relative names and contents, in the order of names.

    `ignore` names files by their relative POSIX path. Times and modes do not count.
    """
    total = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        name = path.relative_to(root).as_posix()
        if name not in ignore:
            total.update(os.fsencode(f"{name}\0{digest_file(path)}\n"))
    return "sha256:" + total.hexdigest()
