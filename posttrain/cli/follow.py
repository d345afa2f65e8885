"""Following a run: a live table on a terminal, one line a change in a pipe.

`Follower.show` is given the workflow's state whenever there is a new one; it draws what changed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from posttrain.argo.status import FINAL, WAITING, phase, steps_of
from posttrain.cli.view import Observed, Row, rows, summary
from posttrain.contract.progress import latest
from posttrain.contract.record import read
from posttrain.units import duration

JSON = dict[str, Any]
NEWS_SECONDS, ALIVE_SECONDS = 15.0, 60.0  # between two lines on a running step: when it has news, and when it has none
_ERROR = "error: "


class Follower:
    """Draws a run. `runs` is the run's directory in the workspace, or None for a cluster's."""

    def __init__(self, title: str, directory: Path | None, console: Console | None = None):
        self._title, self._directory = title, directory
        self._console = console or Console(stderr=False, highlight=False)
        self._workflow: JSON = {}
        self._said: dict[str, tuple[str, str, float]] = {}  # step -> phase, detail and time of its last line

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """The live table stands while this is entered, and its last state stays."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=4):
            yield

    def show(self, workflow: JSON) -> None:
        self._workflow = workflow
        if not self._console.is_terminal:
            self._lines()

    def _rows(self) -> list[Row]:
        return rows(self._workflow, observe(self._workflow, self._directory), time.time())

    def _table(self) -> Group:
        return Group(Text(f"{self._title}: {summary(self._workflow, time.time())}", style="bold"), table(self._rows()))

    def _lines(self) -> None:
        now = time.time()
        for row in self._rows():
            phase_said, detail_said, said_at = self._said.get(row.name, (WAITING, "", now))
            changed = phase_said != row.phase
            quiet = NEWS_SECONDS if row.detail != detail_said else ALIVE_SECONDS
            if changed or (row.phase == "Running" and row.detail and now - said_at > quiet):
                took = f" after {duration(row.seconds)}" if changed and row.phase in FINAL else ""
                detail = f"; {row.detail}" if row.detail else ""
                self._console.out(f"{time.strftime('%H:%M:%S')} {row.name}: {row.word}{took}{detail}")
                self._said[row.name] = (row.phase, row.detail, now)


def observe(workflow: JSON, directory: Path | None) -> dict[str, Observed]:
    """What the steps of a run say of themselves in its `directory`, by the name of their own."""
    found = {}
    for state in steps_of(workflow) if directory else ():
        assert directory is not None
        place = directory / state.directory
        record = read(place) if state.phase == "Succeeded" else None
        found[state.directory] = Observed(latest(place), record.timings["seconds"] if record else None)
    return found


def table(shown: list[Row]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "right"):
        grid.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
    grid.add_column(overflow="fold")
    for row in shown:
        symbol, style = row.symbol
        time_text = duration(row.seconds) if row.seconds is not None else ""
        grid.add_row(Text(symbol, style), row.name, Text(row.word, style), time_text, Text(row.detail, "dim"))
    return grid


@contextmanager
def following(follower: Follower, fetch: Callable[[], JSON | None], every: float = 0.5) -> Iterator[None]:
    """Follow, in a thread of its own, what `fetch` gives, while the caller does the work."""
    over = threading.Event()

    def watch() -> None:
        while True:
            last = over.is_set()
            found = fetch()
            if found:
                follower.show(found)
            if last:
                return
            over.wait(every)

    thread = threading.Thread(target=watch, name="follow", daemon=True)
    with follower.drawing():
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def outcome(workflow: JSON, run: str, logs: Callable[[str], Iterable[tuple[str, str]]] | None = None) -> int:
    """Say on stderr how a run failed, with the line that the step itself said; the exit code."""
    if phase(workflow) == "Succeeded":
        return 0
    for state in steps_of(workflow):
        if state.phase in ("Failed", "Error"):
            said = _last_word(logs(state.name)) if logs and state.phase == "Failed" else ""
            if not said.startswith(_ERROR):
                said = f"{_ERROR}{state.name}: {state.message or state.phase}{said and f'; it said last: {said}'}"
            print(said, file=sys.stderr)
    message = workflow.get("status", {}).get("message", "")
    print(f"run {run} ended as {phase(workflow)}{': ' if message else ''}{message}", file=sys.stderr)
    return 1


def _last_word(lines: Iterable[tuple[str, str]]) -> str:
    """The last `error: …` among a step's lines, as a UserError prints it; where there is none, its last line."""
    said = [line for _, line in lines if line.strip()]
    return next((line for line in reversed(said) if line.startswith(_ERROR)), said[-1] if said else "")
