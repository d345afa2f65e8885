"""How the pipeline tells that it moves on, without knowing who listens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Track(Protocol):
    def __call__(self, rows: Iterable[Any], name: str, total: int | None) -> Iterator[Any]:
        """Yield `rows` and count them under `name`."""


def untracked(rows: Iterable[Any], name: str, total: int | None) -> Iterator[Any]:
    return iter(rows)
