"""When a producer must wait for the consumers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.lakestream.changes import lowest, watermark
from posttrain.lakestream.controls import Controls
from posttrain.lakestream.offsets import IdsOf, Part, Span, rows_from


@dataclass(frozen=True)
class Lag:
    """How far one consumer's acknowledgement is behind the newest version.

    `rows` counts the rows of its part that it has not acknowledged, `commits` the producers' commits since the
    version it had read to the end. `at` is when it acknowledged last, in seconds since 1970; 0 for never.
    """

    group: str
    index: int
    count: int
    offset: int
    rows: int
    commits: int
    at: float


def lags(controls: Controls, spans: Sequence[Span], ids_of: IdsOf) -> list[Lag]:
    """The lag of every consumer of every group."""
    found = []
    for name, group in sorted(controls.stream.body.groups.items()):
        for index in range(group.count):
            mark = watermark(controls, name, index)
            rows = rows_from(spans, mark.offset, Part(index, group.count, group.layers), ids_of)
            commits = controls.commits - mark.commits if rows else 0
            found.append(Lag(name, index, group.count, mark.offset, rows, commits, mark.at))
    return found


@dataclass(frozen=True)
class Backlog:
    """What the slowest consumer of any group has not acknowledged. Without a group there is none."""

    rows: int = 0
    commits: int = 0


def backlog(controls: Controls, spans: Sequence[Span], ids_of: IdsOf) -> Backlog:
    marks = [lowest(controls, name) for name in controls.stream.body.groups]
    if not marks:
        return Backlog()
    rows = rows_from(spans, min(offset for offset, _ in marks), Part(), ids_of)
    return Backlog(rows, controls.commits - min(commits for _, commits in marks) if rows else 0)


def must_wait(controls: Controls, behind: Backlog) -> bool:
    """Whether the stream's bounds hold its producers back. The rows about to be appended do not count."""
    bounds = controls.stream.body.settings
    over_rows = 0 < bounds.max_lag_rows < behind.rows
    over_commits = 0 < bounds.max_lag_commits < behind.commits
    return over_rows or over_commits
