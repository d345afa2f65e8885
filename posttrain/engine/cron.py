"""Cron workflows."""

from typing import Any


def schedule_problems(spec: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    return []
