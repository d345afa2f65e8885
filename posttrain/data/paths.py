"""Finding the files that a source names. Imports nothing heavy: a workflow's check uses it."""

from __future__ import annotations

import glob
from pathlib import Path

from posttrain.data.config import ROOT, Source
from posttrain.errors import UserError


def check_sources(sources: list[Source], workspace: Path) -> None:
    """Whether the files of the sources are there and hold something. Raises UserError."""
    for index, source in enumerate(sources):
        where = f"{ROOT}.sources[{index}].path"
        if source.kind == "files":
            find(source.path, workspace, field=where)
        elif source.kind == "hf_disk" and not (workspace / source.path).is_dir():
            raise UserError("no such directory", field=where, value=source.path,
                            remedy=f"looked at {workspace / source.path}")  # fmt: skip


def find(pattern: str, workspace: Path, *, field: str) -> list[Path]:
    """The files that `pattern` names, in the order of names; a relative one starts at the workspace.

    Raises UserError where there is none, or where one of them is empty.
    """
    found = sorted(Path(name) for name in glob.glob(str(workspace / pattern)))
    files = [path for path in found if path.is_file()]
    if not files:
        what = "is a directory" if found else "no such file"
        raise UserError(what, field=field, value=pattern, remedy=f"looked at {workspace / pattern}")
    for file in files:
        if not file.stat().st_size:
            raise UserError("is an empty file", field=field, value=str(file), remedy="give a file with rows")
    return files
