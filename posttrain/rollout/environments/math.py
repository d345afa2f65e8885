"""`math`: problems that reasoning-gym generates, or those of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.rollout.environments.base import Task, Tool, asking
from posttrain.rollout.environments.settings import MathSettings

_FORM = "Think as long as you like. Give the final answer alone between <answer> and </answer>."
_KEYS = {"question", "answer", "verifier", "metadata", "id", "tier"}


class MathEnvironment:
    """Raises UserError for a data set that there is not, and for a file that cannot be read."""

    name, summary = "math", "problems with one answer: reasoning-gym's generators, or JSON lines"
    tools: tuple[Tool, ...] = ()

    def __init__(self, settings: MathSettings):
        self._settings = settings

    def tasks(self) -> Iterator[Task]:
        return self._of_file() if self._settings.file else self._generated()

    def _generated(self) -> Iterator[Task]:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        s = self._settings
        for name in s.datasets:
            if name not in DATASETS:
                raise UserError("reasoning-gym has no such data set", field="datasets", value=name)
        try:
            made = {
                name: reasoning_gym.create_dataset(name, size=s.size, seed=s.seed, **s.parameters.get(name, {}))
                for name in s.datasets
            }
        except (AssertionError, TypeError, ValueError) as problem:
            raise UserError(f"are refused: {problem}", field="parameters", value=s.parameters) from None
        for index in range(s.size):
            for name, entries in made.items():
                yield _generated(name, index, s.seed, entries[index])

    def _of_file(self) -> Iterator[Task]:
        for number, row in enumerate(rows_of(Path(self._settings.file), "file", {"question", "answer"}, _KEYS)):
            yield Task(
                id=str(row.get("id", f"line-{number + 1}")), messages=asking(f"{row['question']}\n\n{_FORM}"),
                verifier=row.get("verifier", "math"), answer=str(row["answer"]), metadata=row.get("metadata", {}),
                tier=row.get("tier", ""),
            )  # fmt: skip


def _generated(name: str, index: int, seed: int, entry: dict[str, Any]) -> Task:
    metadata = json.loads(json.dumps(entry["metadata"], default=str)) | {"question": entry["question"]}
    return Task(
        id=f"{name}-{seed}-{index}", messages=asking(f"{entry['question']}\n\n{_FORM}"),
        verifier=f"reasoning_gym:{name}", answer=str(entry["answer"]), metadata=metadata,
    )  # fmt: skip


def rows_of(path: Path, field: str, needed: set[str], known: set[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines. Raises UserError that names the line at fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is no UTF-8"
        raise UserError(f"cannot be read: {why}", field=field, value=str(path)) from None
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would cut a text at its U+2028
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as problem:
            raise UserError(f"line {number} is no JSON: {problem}", field=field, value=str(path)) from None
        if not isinstance(row, dict) or not needed <= row.keys() or not row.keys() <= known:
            remedy = f"each line has {', '.join(sorted(needed))}, and may have {', '.join(sorted(known - needed))}"
            raise UserError(f"line {number} is no task", field=field, value=str(path), remedy=remedy)
        yield row
