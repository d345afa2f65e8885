"""Finds what a worker that was killed left behind: groups, and copies of roots where the kernel makes no overlay.

All else the kernel ends with the worker. Both are named after the worker's pid and start (`line.prefix_of`);
where no such process lives, they go.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from posttrain.isolation import cgroups
from posttrain.isolation.processes import lives

PREFIX = "posttrain-sandbox-"
_NAME = re.compile(rf"{PREFIX}(\d+)-(\d+)-\d+")


def abandoned() -> list[Path]:
    """Groups and copies of sandboxes whose worker has gone."""
    return [path for path in (*cgroups.left(PREFIX), *_copies()) if _is_abandoned(path.name)]


def reap() -> list[Path]:
    """Remove them; those that were there. A process that is still in a group is killed."""
    found, copies = abandoned(), set(_copies())
    for path in found:
        if path in copies:
            shutil.rmtree(path, ignore_errors=True)
        else:
            cgroups.destroy(path)
    return found


def _copies() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _is_abandoned(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and not lives(int(match[1]), int(match[2]))
