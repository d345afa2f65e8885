"""Layout of a workflow's graph: which column and row a step stands in, and which edges to draw. Pure.

Columns are longest paths from a root (Sugiyama's first step); rows follow the mean row of what a
step waits for; edges that others imply are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

Edges = Mapping[str, Sequence[str]]  # step -> steps it waits for


def columns(waits_for: Edges) -> dict[str, int]:
    """Column of each step: one more than the largest among those it waits for."""

    @cache
    def column(name: str) -> int:
        return 1 + max((column(other) for other in waits_for[name] if other in waits_for), default=-1)

    return {name: column(name) for name in waits_for}


def essential(waits_for: Edges) -> list[tuple[str, str]]:
    """The edges (from, to) that no longer path implies: the transitive reduction."""

    @cache
    def ancestors(name: str) -> frozenset[str]:
        direct = [other for other in waits_for[name] if other in waits_for]
        return frozenset(direct).union(*(ancestors(other) for other in direct))

    return [
        (source, name)
        for name, sources in waits_for.items()
        for source in dict.fromkeys(sources)
        if source in waits_for and not any(source in ancestors(o) for o in sources if o in waits_for and o != source)
    ]


def positions(waits_for: Edges) -> dict[str, tuple[int, float]]:
    """(column, row) of each step. Rows of one column are distinct and centred on 0."""
    column_of = columns(waits_for)
    placed: dict[str, tuple[int, float]] = {}
    for index in range(max(column_of.values(), default=-1) + 1):
        members = [name for name, column in column_of.items() if column == index]
        members.sort(key=lambda name: _mean_row(waits_for[name], placed))
        for place, name in enumerate(members):
            placed[name] = (index, place - (len(members) - 1) / 2)
    return placed


def _mean_row(sources: Sequence[str], placed: Mapping[str, tuple[int, float]]) -> float:
    rows = [placed[s][1] for s in sources if s in placed]
    return sum(rows) / len(rows) if rows else 0.0
