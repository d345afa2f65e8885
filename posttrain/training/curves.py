"""The curve of a step that is resumed: points behind the update it resumes from are taken out, to be drawn again."""

from __future__ import annotations

import json

from posttrain.contract import StepContext
from posttrain.contract.context import METRICS
from posttrain.contract.files import write_atomic


def forget_after(context: StepContext, update: int) -> None:
    """Keep the points of metrics.jsonl up to `update`; a line that a kill cut off goes too."""
    path = context.directory / METRICS
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        write_atomic(path, "".join(line + "\n" for line in lines if 0 <= _update_of(line) <= update))


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError, TypeError):
        return -1
