"""What a check found wrong, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """`path` is the dotted path of the field in its document, `line` its line in `file` (1-based)."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path}: {self.message}".replace("\n", " ")


Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    """`spec.templates[0].name` of a path of keys and places."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
