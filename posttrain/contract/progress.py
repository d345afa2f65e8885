"""Progress of a running step: on the terminal, in the log, and for whoever watches the run.

A step opens a task and advances it. Each update that is due is appended to `progress.jsonl` in
the step's directory, one JSON object a line, which `posttrain run`, `watch` and `report` read:

    {"time": 1764450000.1, "task": "train", "done": 4096, "total": 65536, "unit": "tokens", "loss": 1.2}

On a terminal a tqdm bar is drawn; elsewhere at most one line every five seconds is printed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

FILE = "progress.jsonl"


class Task:
    """One count from 0 to `total` (None where it is not known). Made by `Progress.task`."""

    def __init__(self, sink: Path, name: str, total: int | None, unit: str):
        self.name, self.total, self.unit, self.done = name, total, unit, 0
        self._sink, self._written, self._started = sink, 0.0, time.monotonic()
        self._values: dict[str, Any] = {}
        terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total, desc=name, unit=f" {unit}", unit_scale=True, dynamic_ncols=terminal,
            file=sys.stderr if terminal else _Lines(sys.stderr),
            mininterval=0.2 if terminal else 5.0, ascii=None if terminal else True, leave=True,
        )  # fmt: skip
        self._write(force=True)

    def advance(self, amount: int = 1, **values: Any) -> None:
        """`amount` more units are done; `values` (loss, accuracy, …) are shown beside the count."""
        self.done += amount
        self._values.update(values)
        if values:
            self._bar.set_postfix({k: _brief(v) for k, v in self._values.items()}, refresh=False)
        self._bar.update(amount)
        self._write(force=self.total is not None and self.done >= self.total)

    def close(self) -> None:
        self._write(force=True)
        self._bar.close()

    def _write(self, *, force: bool = False) -> None:
        now = time.time()
        if not force and now - self._written < 0.5:
            return
        self._written = now
        entry = {"time": round(now, 3), "task": self.name, "done": self.done, "total": self.total, "unit": self.unit}
        with open(self._sink, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry | self._values) + "\n")


class Progress:
    def __init__(self, directory: Path):
        self._sink = directory / FILE

    @contextmanager
    def task(self, name: str, total: int | None = None, unit: str = "rows") -> Iterator[Task]:
        task = Task(self._sink, name, total, unit)
        try:
            yield task
        finally:
            task.close()


class _Lines:
    """What tqdm draws over and over in one place, as lines: a log has no such place, and others write to it too."""

    def __init__(self, sink: TextIO):
        self._sink, self._last = sink, ""

    def write(self, text: str) -> None:
        line = text.strip()
        if line and line != self._last:
            self._sink.write(f"{line}\n")
            self._last = line

    def flush(self) -> None:
        self._sink.flush()


def latest(directory: Path) -> dict[str, Any] | None:
    """The last entry of a step's progress, or None where there is none yet."""
    try:
        with open(directory / FILE, "rb") as source:
            source.seek(0, 2)
            source.seek(max(0, source.tell() - 4096))
            lines = source.read().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that is being written
    return None


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
