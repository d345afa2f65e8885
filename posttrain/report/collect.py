"""Gathers what a run left in the workspace into a `RunReport`.

Invariant: it reads what is there and demands nothing: a run that failed at its first step gives a
report too. Heavy data is not opened; scores and samples come from the summaries that evaluations
write beside their tables.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from posttrain.argo.status import WAITING, StepState, moment, phase, steps_of, times
from posttrain.contract.context import METRICS
from posttrain.contract.record import FILE as RECORD
from posttrain.engine import Engine
from posttrain.errors import UserError
from posttrain.report.evaluations import read_evaluations
from posttrain.report.model import RunReport, StepView

JSON = dict[str, Any]


def collect(
    workspace: Path, run: str, *, workflow: JSON | None = None, status: str = "", failures: str = ""
) -> RunReport:
    """What is known of `run`.

    `workflow` is the workflow object with its status, where a cluster ran it; the embedded engine's is
    found in the workspace. `status` and `failures` are what Argo tells an exit handler
    (`workflow.status` and `workflow.failures`). Raises UserError for an unknown run.
    """
    directory = workspace / "runs" / run
    if not directory.is_dir():
        raise UserError("no such run in the workspace", field="RUN", value=run, remedy="see `posttrain list`")
    engine = Engine(workspace)
    ours = engine.exists(run)
    workflow = workflow or (engine.get(run) if ours else None)
    records = {path.parent.name: json.loads(path.read_text()) for path in sorted(directory.glob(f"*/{RECORD}"))}
    if workflow:
        states = [state for state in steps_of(workflow) if not state.exit_handler]
    else:
        states = _states_from(records) + _failed(failures)
    if ours:
        states = [_with_complaint(engine, run, state) for state in states]
    steps = tuple(_view(directory, state, records.get(state.directory)) for state in states)
    evaluations, samples = read_evaluations(workspace, steps)
    started, finished = _times(workflow, records)
    return RunReport(
        run=run,
        route=(workflow or {}).get("metadata", {}).get("labels", {}).get("posttrain/route", ""),
        phase=_phase(workflow, status, states),
        started=started,
        seconds=finished - started if started and finished else None,
        steps=steps,
        evaluations=evaluations,
        samples=samples,
    )


def _phase(workflow: JSON | None, status: str, states: list[StepState]) -> str:
    """The run's phase. While the exit handler runs, the workflow itself has none yet that is final."""
    if status:
        return status
    if workflow:
        return phase(workflow)
    return "Succeeded" if all(s.phase == "Succeeded" for s in states) else "Unknown"


def _states_from(records: dict[str, JSON]) -> list[StepState]:
    """The steps that ended, in their order; each waits for those whose outputs it was given."""
    ordered = sorted(records.values(), key=lambda r: r["timings"]["started"])
    makers = {
        value: record["step"]
        for record in ordered
        for value in record["outputs"].values()
        if isinstance(value, str) and "#sha256:" in value
    }
    states = []
    for record in ordered:
        sources = (makers.get(value) for value in record["inputs"].values() if isinstance(value, str))
        begun, ended = record["timings"]["started"], record["timings"]["ended"]
        waits_for = tuple(dict.fromkeys(s for s in sources if s and s != record["step"]))
        states.append(StepState(record["step"], "Succeeded", begun, ended, waits_for=waits_for))
    return states


def _failed(failures: str) -> list[StepState]:
    """The steps that `workflow.failures` names: JSON in a JSON string, `null` where nothing failed."""
    listed = (json.loads(json.loads(failures)) if failures.startswith('"') else None) or []
    known = {
        entry["displayName"].partition("(")[0]: entry for entry in listed if entry["podName"] != entry["displayName"]
    }
    return [
        StepState(name, entry["phase"], finished=moment(entry["finishedAt"]), message=entry["message"])
        for name, entry in known.items()
    ]


def _with_complaint(engine: Engine, run: str, state: StepState) -> StepState:
    """A failed step says what it said itself: the last `error: …` line that it wrote, where there is one."""
    if state.phase != "Failed":
        return state
    lines = [line for name, line in engine.logs(run) if name.partition("(")[0] == state.name]
    said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
    return replace(state, message=said.removeprefix("error: ") or state.message)


def _view(directory: Path, state: StepState, record: JSON | None) -> StepView:
    view = StepView(
        name=state.name,
        phase=state.phase,
        started=state.started,
        message=state.message,
        waits_for=state.waits_for,
        record=record,
        curves=_curves(directory / state.directory / METRICS),
    )
    if record:  # a node counts from when it was planned, and a pod may have waited for room
        return replace(view, started=record["timings"]["started"], seconds=record["timings"]["seconds"])
    if state.started and state.finished and state.phase not in ("Omitted", "Skipped"):
        return replace(view, seconds=state.finished - state.started)
    return view if state.phase != WAITING else replace(view, message="has not started")


def _curves(path: Path) -> dict[str, list[tuple[float, float]]]:
    """metric -> points. A step that was resumed wrote some points twice: the later one holds."""
    if not path.is_file():
        return {}
    found: dict[str, dict[float, float]] = {}
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that a killed step was writing
        for name, value in entry.items():
            if name not in ("time", "step") and isinstance(value, int | float):
                found.setdefault(name, {})[entry["step"]] = value
    return {name: sorted(points.items()) for name, points in found.items()}


def _times(workflow: JSON | None, records: dict[str, JSON]) -> tuple[float | None, float | None]:
    started, finished = times(workflow) if workflow else (None, None)
    timings = [record["timings"] for record in records.values()]
    started = started or min((t["started"] for t in timings), default=None)
    finished = finished or max((t["ended"] for t in timings), default=None)
    return started, finished
