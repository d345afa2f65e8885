"""What a cron workflow does next. Pure: a CronWorkflow object and the time, to a decision.

The object's `status` is kept as Argo's controller keeps it: active, succeeded, failed, phase,
lastScheduledTime, conditions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from posttrain.engine.cron.schedule import Schedule
from posttrain.engine.expressions import ExpressionError, ParseError, decide, evaluate_bool, with_functions
from posttrain.engine.expressions.dates import read_shown, shown
from posttrain.engine.templates import LENIENT, FlatScope, SubstitutionError, substitute

JSON = dict[str, Any]
POLICIES = ("Allow", "Forbid", "Replace")
OF_CRON = "workflows.argoproj.io/cron-workflow"
SCHEDULED = "workflows.argoproj.io/scheduled-time"
USED = "cronworkflows.argoproj.io/last-used-schedule"
COMPLETED = "cronworkflows.argoproj.io/completed"


@dataclass(frozen=True)
class Decision:
    """Whether a due run starts, which active runs are ended first, and why it does not start."""

    start: bool
    replaces: tuple[str, ...] = ()
    why: str = ""
    problem: str = ""


def schedules_of(spec: JSON) -> list[Schedule]:
    """Raises ValueError for one that is none."""
    texts = spec.get("schedules") or ([spec["schedule"]] if spec.get("schedule") else [])
    return [Schedule(text, spec.get("timezone") or "") for text in texts]


def schedule_problems(spec: JSON) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with the spec of a CronWorkflow, apart from its workflow: (path below spec, message)."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    if not spec.get("schedules") and not spec.get("schedule"):
        problems.append((("schedules",), "cron workflow must have at least one schedule"))
    for place, text in enumerate(spec.get("schedules") or []):
        try:
            Schedule(text)
        except ValueError as error:
            problems.append((("schedules", place), f"cron schedule {text} is malformed: {error}"))
    try:
        Schedule("* * * * *", spec.get("timezone") or "")
    except ValueError as error:
        problems.append((("timezone",), str(error)))
    if spec.get("concurrencyPolicy") not in (None, "", *POLICIES):
        problems.append((("concurrencyPolicy",), f"'{spec['concurrencyPolicy']}' is not a valid concurrencyPolicy"))
    if (spec.get("startingDeadlineSeconds") or 0) < 0:
        problems.append((("startingDeadlineSeconds",), "startingDeadlineSeconds must be positive"))
    return problems


def text_of(spec: JSON) -> str:
    """The schedules and the zone in one text; where it changes, missed starts of the old ones are not made up for."""
    zone = f"CRON_TZ={spec['timezone']} " if spec.get("timezone") else ""
    return ",".join(zone + one.text for one in schedules_of(spec))


def next_due(cron: JSON, after: float) -> float | None:
    """When the next run is due."""
    times = [one.after(after) for one in schedules_of(cron["spec"])]
    return min((one for one in times if one is not None), default=None)


def due_between(cron: JSON, after: float, now: float) -> list[float]:
    """The due times in (after, now]; of two schedules that are due at one time each counts."""
    found: list[float] = []
    for schedule in schedules_of(cron["spec"]):
        due = schedule.after(after)
        while due is not None and due <= now:
            found.append(due)
            due = schedule.after(due)
    return sorted(found)


def missed(cron: JSON, now: float) -> float | None:
    """The due time that passed while nobody looked, if it is still to be made up for."""
    last, patience = cron["status"].get("lastScheduledTime"), cron["spec"].get("startingDeadlineSeconds")
    used = (cron["metadata"].get("annotations") or {}).get(USED)
    if last is None or patience is None or used != text_of(cron["spec"]):
        return None
    for schedule in schedules_of(cron["spec"]):
        latest, due = None, schedule.after(max(read_shown(last), now - patience - 1))
        while due is not None and due < now:
            latest, due = due, schedule.after(due)
        if latest is not None and now < latest + patience:
            return latest
    return None


def decide_start(cron: JSON) -> Decision:
    """Whether a run that is due may start now."""
    spec, status = cron["spec"], cron["status"]
    if spec.get("suspend"):
        return Decision(False, why="suspended")
    try:
        if stops(cron):
            stop(cron)
    except ValueError as error:
        return Decision(False, problem=f"SpecError: failed to check stopping condition: {error}")
    if status.get("phase") == "Stopped":
        return Decision(False, why="stopped: its stopping condition is true")
    try:
        if not _when(cron):
            return Decision(False, why="its when is false")
    except ValueError as error:
        return Decision(False, problem=f"SubmissionError: run policy error: {error}")
    active = tuple(one["name"] for one in status.get("active") or [])
    if active and spec.get("concurrencyPolicy") == "Forbid":
        return Decision(False, why=f"{active[0]} is still active")
    return Decision(True, active if spec.get("concurrencyPolicy") == "Replace" else ())


def started(cron: JSON, run: JSON, scheduled: float) -> None:
    """Note a run that was started."""
    metadata, status = run["metadata"], cron["status"]
    reference = {"apiVersion": run["apiVersion"], "kind": "Workflow", "name": metadata["name"],
                 "namespace": metadata["namespace"], "uid": metadata["uid"]}  # fmt: skip
    status["active"] = [*(status.get("active") or []), reference]
    status["phase"] = "Active"
    status["lastScheduledTime"] = shown(scheduled)
    status["conditions"] = [one for one in status.get("conditions") or [] if one["type"] != "SubmissionError"]


def ended(cron: JSON, name: str, phase: str | None) -> None:
    """Note that an active run has ended, with None where it is gone."""
    status = cron["status"]
    status["active"] = [one for one in status.get("active") or [] if one["name"] != name]
    counter = {"Failed": "failed", "Error": "failed", "Succeeded": "succeeded"}.get(phase or "")
    if counter:
        status[counter] = status.get(counter, 0) + 1
        if stops(cron):
            stop(cron)


def stops(cron: JSON) -> bool:
    """Whether the stopping condition is true. Raises ValueError where it means nothing."""
    strategy = cron["spec"].get("stopStrategy")
    if not strategy:
        return False
    try:
        return evaluate_bool(strategy.get("expression") or "", with_functions({"cronworkflow": _variables(cron)}))
    except (ExpressionError, ParseError) as error:
        raise ValueError(str(error)) from None


def stop(cron: JSON) -> None:
    """The cron workflow makes no more runs."""
    cron["status"]["phase"] = "Stopped"
    cron["metadata"].setdefault("labels", {})[COMPLETED] = "true"


def condition(cron: JSON, kind: str, message: str) -> None:
    """Note what is wrong; a failed submission counts as a failed run."""
    status = cron["status"]
    others = [one for one in status.get("conditions") or [] if one["type"] != kind]
    status["conditions"] = [*others, {"type": kind, "message": message, "status": "True"}]
    if kind == "SubmissionError":
        status["failed"] = status.get("failed", 0) + 1


def too_old(cron: JSON, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the ended runs ({name, phase, finishedAt}) beyond the limits of the history."""
    spec, gone = cron["spec"], []
    listed = [one for one in runs if one.get("finishedAt")]
    for key, usual, good in (("successfulJobsHistoryLimit", 3, True), ("failedJobsHistoryLimit", 1, False)):
        wanted = spec.get(key)
        keep = usual if wanted is None or wanted < 0 else wanted
        kind = [one for one in listed if (one["phase"] == "Succeeded") is good]
        kind.sort(key=lambda one: one["finishedAt"], reverse=True)
        gone += [one["name"] for one in kind[keep:]]
    return gone


def workflow_for(cron: JSON, scheduled: float) -> JSON:
    """The Workflow of one due time."""
    spec, own = cron["spec"], cron["spec"].get("workflowMetadata") or {}
    name = cron["metadata"]["name"]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": f"{name}-{int(scheduled)}",
            "labels": {**(own.get("labels") or {}), OF_CRON: name},
            "annotations": {**(own.get("annotations") or {}), SCHEDULED: shown(scheduled)},
        },
        "spec": deepcopy(spec["workflowSpec"]),
    }


def _variables(cron: JSON) -> JSON:
    """What expressions of a cron workflow know. `annotations` holds the labels: so it is in Argo's controller."""
    metadata, status = cron["metadata"], cron["status"]
    labels = metadata.get("labels") or {}
    return {
        "name": metadata["name"], "namespace": metadata.get("namespace", ""), "labels": labels, "annotations": labels,
        "labels.json": json.dumps(labels, separators=(",", ":")),
        "annotations.json": json.dumps(metadata.get("annotations") or {}, separators=(",", ":")),
        "failed": status.get("failed", 0), "succeeded": status.get("succeeded", 0),
        "lastScheduledTime": status.get("lastScheduledTime"),
    }  # fmt: skip


def _when(cron: JSON) -> bool:
    text = cron["spec"].get("when") or ""
    if not text:
        return True
    variables = {f"cronworkflow.{key}": value for key, value in _variables(cron).items()}
    flat = {key: value if isinstance(value, str) else json.dumps(value) for key, value in variables.items()}
    try:
        return decide(substitute(text, FlatScope(flat), LENIENT))
    except (ExpressionError, ParseError, SubstitutionError) as error:
        raise ValueError(str(error)) from None
