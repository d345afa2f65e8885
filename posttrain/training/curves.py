"""Lines that a step has drawn, one for each update, when it is resumed: those behind the update it resumes from are
taken out, to be drawn again."""

from __future__ import annotations

import json
from pathlib import Path

from posttrain.contract.files import write_atomic


def forget_after(path: Path, update: int, *, key: str) -> None:
    """Keep the JSON lines of `path` whose `key` is at most `update`; a line that a kill cut off goes too."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        write_atomic(path, "".join(line + "\n" for line in lines if 0 <= _number(line, key) <= update))


def _number(line: str, key: str) -> int:
    try:
        return int(json.loads(line)[key])
    except (json.JSONDecodeError, KeyError, TypeError):
        return -1
