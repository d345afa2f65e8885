"""Reading cases: manifests whose leading comments say what they are about and what an operator does meanwhile."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from posttrain.engine.manifest.yaml import read_documents

JSON = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """`after` seconds, or `when` the workflow has this phase, do `verb` with `flags`. `text` as it is written."""

    text: str
    verb: str
    flags: tuple[str, ...]
    after: float | None = None
    when: str | None = None


@dataclass(frozen=True)
class Case:
    """`file` is the manifest; `expected` the recorded result, if there is one."""

    file: Path
    expected: JSON | None

    @property
    def topic(self) -> str:
        return self.file.parent.name

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.file.stem}"

    @cached_property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.text.splitlines():
            if not line.startswith("#"):
                break
            if header := re.match(r"#\s*([a-z]+):\s*(.*)", line):
                found[header[1]] = header[2].strip()
        return found

    @cached_property
    def documents(self) -> list[JSON]:
        return read_documents(self.text)

    @property
    def kind(self) -> str:
        return self.documents[-1]["kind"]

    @property
    def operations(self) -> list[Operation]:
        return [_operation(one.strip()) for one in self.headers.get("operations", "").split(";") if one.strip()]

    @property
    def volatile(self) -> list[str]:
        """Fields that differ between two runs of the case on one engine, as recorded or as its header says."""
        said = self.headers.get("volatile", "")
        return [
            *((self.expected or {}).get("volatile") or []),
            *(one.strip() for one in said.split(";") if one.strip()),
        ]

    @property
    def seconds(self) -> float | None:
        """How long it is watched, where it does not end by itself."""
        if self.headers.get("needs", "").startswith("stop-after"):
            return 25.0
        if "observe" in self.headers:
            return float(self.headers["observe"].rstrip("s"))
        return None


def _operation(text: str) -> Operation:
    words = shlex.split(text)
    after = float(words[1].rstrip("s")) if words[0] == "after" else None
    when = words[1] if words[0] == "when-phase" else None
    verb, flags = words[2], words[3:]
    if verb == "node":
        verb, flags = f"node {flags[0]}", flags[1:]
    return Operation(text, verb, tuple(flags), after, when)


def find_cases(cases: Path, results: Path | None = None) -> list[Case]:
    """Every case below a directory, by name, with its result from the directory beside it. A file is one case."""
    files = [cases] if cases.is_file() else sorted(cases.rglob("*.yaml"))
    found: list[Case] = []
    for file in files:
        root = results or Path(str(file.parent.parent)).parent / "results"
        result = root / file.parent.name / f"{file.stem}.json"
        expected = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
        found.append(Case(file, expected))
    return found
