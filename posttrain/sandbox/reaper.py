"""Finds what a worker that was killed left behind: groups, since the kernel ends everything else with it.

A group is named after its worker's pid and start (`line.prefix_of`); where no such process lives, it goes.
"""

from __future__ import annotations

import re
from pathlib import Path

from posttrain.isolation import cgroups
from posttrain.isolation.processes import lives

PREFIX = "posttrain-sandbox-"
_NAME = re.compile(rf"{PREFIX}(\d+)-(\d+)-\d+")


def abandoned() -> list[Path]:
    """Groups of sandboxes whose worker has gone."""
    return [
        path for path in cgroups.left(PREFIX) if (m := _NAME.fullmatch(path.name)) and not lives(int(m[1]), int(m[2]))
    ]


def reap() -> list[Path]:
    """Remove them; those that were there. A process that is still in one is killed."""
    found = abandoned()
    for path in found:
        cgroups.destroy(path)
    return found
