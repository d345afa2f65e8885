"""How a run looks on a terminal: one row a step, with state, time, and what it says of itself. Pure.

The same rows serve the live view, `get`, and the plain lines that a pipe gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.argo.status import WAITING, StepState, phase, steps_of, times
from posttrain.units import count, duration

JSON = dict[str, Any]

SYMBOLS = {
    "Succeeded": ("✓", "green"),
    "Failed": ("✗", "red"),
    "Error": ("✗", "red"),
    "Running": ("●", "blue"),
    "Serving": ("●", "cyan"),
    "Pending": ("○", "yellow"),
    "Skipped": ("–", "dim"),
    "Omitted": ("–", "dim"),
    WAITING: ("·", "dim"),
}


@dataclass(frozen=True)
class Observed:
    """What a step says of itself: its last progress entry, and once it ended the seconds it worked."""

    progress: JSON | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Row:
    name: str
    phase: str
    seconds: float | None
    detail: str

    @property
    def symbol(self) -> tuple[str, str]:
        return SYMBOLS.get(self.phase, ("?", "yellow"))

    @property
    def word(self) -> str:
        return self.phase.lower()


def rows(workflow: JSON, observed: Mapping[str, Observed], now: float) -> list[Row]:
    """One row a step. `observed` is by the steps' directories.

    A step that ended counts the seconds it worked; a node counts from when it was planned, so that
    the wait for room would count too.
    """
    outputs = _outputs(workflow)
    known = {state.name: observed.get(state.directory, Observed()) for state in steps_of(workflow)}
    return [
        Row(
            state.name,
            "Serving" if state.daemon and state.phase == "Running" else state.phase,
            known[state.name].seconds or elapsed(state, now),
            _detail(state, known[state.name].progress, outputs.get(state.name, {})),
        )
        for state in steps_of(workflow)
    ]


def summary(workflow: JSON, now: float) -> str:
    """`Running, 3 of 10 steps, 2 min 10 s`"""
    states = [s for s in steps_of(workflow) if not s.exit_handler]
    done = sum(s.phase in ("Succeeded", "Skipped") for s in states)
    started, finished = times(workflow)
    took = f", {duration((finished or now) - started)}" if started else ""
    return f"{phase(workflow)}, {done} of {len(states)} steps{took}"


def elapsed(state: StepState, now: float) -> float | None:
    if state.started is None or state.phase in (WAITING, "Pending", "Omitted", "Skipped"):
        return None
    return (state.finished or max(now, state.started)) - state.started


def progress_text(entry: JSON) -> str:
    """`train 4.1k/65.5k tokens (6 %), loss 1.21`"""
    done, total, unit = entry["done"], entry.get("total"), entry.get("unit", "")
    amount = f"{count(done)}/{count(total)}" if total else count(done)
    share = f" ({100 * done / total:.0f} %)" if total else ""
    known = {"time", "task", "done", "total", "unit"}
    values = [f"{name} {number(value)}" for name, value in entry.items() if name not in known]
    return ", ".join([f"{entry['task']} {amount} {unit}{share}", *values])


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _detail(state: StepState, entry: JSON | None, outputs: Mapping[str, str]) -> str:
    if state.phase == "Succeeded":
        return ", ".join(f"{name} {text}" for name, text in _telling(outputs))
    if state.phase in ("Failed", "Error", "Pending", "Omitted", "Skipped"):
        return state.message
    attempt = f"attempt {state.attempts}: " if state.attempts > 1 else ""
    if state.phase == "Running" and entry and entry["time"] >= (state.started or 0):
        return attempt + progress_text(entry)
    return attempt.rstrip(": ")


def _telling(outputs: Mapping[str, str], limit: int = 4) -> list[tuple[str, str]]:
    """The outputs that say something at a glance: numbers, and short words such as a verdict."""
    shown = []
    for name, text in outputs.items():
        try:
            value = float(text)
        except ValueError:
            if "/" in text or "#" in text or len(text) > 60:
                continue
            shown.append((name, text))
        else:
            shown.append((name, count(value) if value == int(value) else number(value)))
    return shown[:limit]


def _outputs(workflow: JSON) -> dict[str, dict[str, str]]:
    nodes = (workflow.get("status", {}).get("nodes") or {}).values()
    return {
        node["displayName"]: {p["name"]: p.get("value", "") for p in node["outputs"].get("parameters", [])}
        for node in nodes
        if node.get("outputs")
    }
