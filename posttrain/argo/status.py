"""Reading a workflow object, the engine's or a cluster's: which steps it has, and how each stands. Pure.

A workflow says what shall run in `spec.templates` and what did in `status.nodes`; `steps_of` brings
the two together, so that a step that has not started yet is seen too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from posttrain.errors import UserError

JSON = dict[str, Any]

WAITING = "Waiting"
FINAL = ("Succeeded", "Failed", "Error")
LEAVES = ("Pod", "Retry", "Skipped", "Suspend", "HTTP", "Plugin", "Container")
_TASK = re.compile(r"([A-Za-z0-9_][-A-Za-z0-9_]*)(?:\.[A-Za-z]+)?")


@dataclass(frozen=True)
class StepState:
    """`phase` is Argo's, or Waiting before there is a node. Times are seconds since the epoch."""

    name: str
    phase: str
    started: float | None = None
    finished: float | None = None
    message: str = ""
    waits_for: tuple[str, ...] = ()
    daemon: bool = False
    exit_handler: bool = False
    attempts: int = 1

    @property
    def directory(self) -> str:
        """Name of the step's directory in `runs/RUN/`."""
        return self.name.replace("-", "_")


def phase(workflow: JSON) -> str:
    """The workflow's phase; Pending before there is one."""
    return workflow.get("status", {}).get("phase") or "Pending"


def nodes_of(workflow: JSON) -> dict[str, JSON]:
    """What became of it so far: its nodes, by their id."""
    return workflow.get("status", {}).get("nodes") or {}


def waiting_nodes(workflow: JSON) -> list[str]:
    """The ids of the nodes that wait for somebody to say that they may go on."""
    nodes = nodes_of(workflow).items()
    return [id for id, node in nodes if node.get("type") == "Suspend" and node.get("phase") == "Running"]


def named(workflow: JSON, step: str | None) -> Callable[[str], bool]:
    """Whether a display name is that of `step` (its name with - or _) or of an attempt of it; without a step, of any.

    Raises UserError where the workflow has no such step.
    """
    wanted = step.replace("_", "-") if step else None
    known = [state.name for state in steps_of(workflow)]
    if wanted and wanted not in known:
        raise UserError("no such step", field="STEP", value=step, remedy=f"known: {', '.join(known)}")
    return lambda display: wanted in (None, display.partition("(")[0])


def times(workflow: JSON) -> tuple[float | None, float | None]:
    """When the workflow started and finished."""
    status = workflow.get("status", {})
    return moment(status.get("startedAt")), moment(status.get("finishedAt"))


def steps_of(workflow: JSON) -> list[StepState]:
    """The steps in the order of the definition; those of the exit handler last."""
    planned = dict(_planned(workflow))
    nodes = _leaves(workflow)
    found = [_state(name, nodes.pop(name, None), waits_for) for name, waits_for in planned.items()]
    extra = sorted(nodes.items(), key=lambda item: item[1].get("startedAt") or "")
    found += [_state(name, node, ()) for name, node in extra]
    ends = {name for name, node in _leaves(workflow).items() if ".onExit" in node.get("name", "")}
    plain = [s for s in found if s.name not in ends]
    return plain + [_at_exit(s) for s in found if s.name in ends]


def ended_services(workflow: JSON) -> list[str]:
    """The daemons that ended as the run did, for which a step that failed had waited: without them it fails again."""
    daemons = {template["name"] for template in workflow["spec"].get("templates", []) if template.get("daemon")}
    nodes = nodes_of(workflow).values()
    ended = {n["displayName"] for n in nodes if n.get("templateName") in daemons and n.get("phase") == "Succeeded"}
    failed = [state for state in steps_of(workflow) if state.phase in ("Failed", "Error")]
    return sorted(ended & {name for state in failed for name in state.waits_for})


def moment(text: str | None) -> float | None:
    """Kubernetes' timestamp in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def _planned(workflow: JSON) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(step, what it waits for) of the template that the workflow starts with."""
    spec = workflow.get("spec", {})
    template: JSON = next((t for t in spec.get("templates", []) if t.get("name") == spec.get("entrypoint")), {})
    for task in template.get("dag", {}).get("tasks", []):
        depends = task.get("depends") or " ".join(task.get("dependencies", []))
        yield task["name"], tuple(dict.fromkeys(_TASK.findall(depends)))
    before: tuple[str, ...] = ()
    for group in template.get("steps", []):
        for step in group:
            yield step["name"], before
        before = tuple(step["name"] for step in group)


def _leaves(workflow: JSON) -> dict[str, JSON]:
    """Nodes that do something, by display name. A Retry node stands for its attempts, and says what the last says."""
    nodes = nodes_of(workflow)
    found: dict[str, JSON] = {}
    for node in nodes.values():
        if node.get("type") not in LEAVES or node.get("nodeFlag", {}).get("retried"):
            continue
        attempts = [nodes[c] for c in node.get("children", []) if nodes.get(c, {}).get("nodeFlag", {}).get("retried")]
        last = attempts[-1] if node["type"] == "Retry" and attempts else {}
        waiting = node.get("phase") == "Running" and last.get("phase") == "Pending"
        found[node["displayName"]] = node | {
            "attempts": len(attempts) or 1,
            "phase": "Pending" if waiting else node.get("phase"),
            "startedAt": last.get("startedAt") or node.get("startedAt"),
            "message": last.get("message") or node.get("message") or "",
            "daemoned": node.get("daemoned") or last.get("daemoned"),
        }
    return found


def _state(name: str, node: JSON | None, waits_for: tuple[str, ...]) -> StepState:
    if node is None:
        return StepState(name, WAITING, waits_for=waits_for)
    return StepState(
        name,
        node.get("phase") or "Pending",
        moment(node.get("startedAt")),
        moment(node.get("finishedAt")),
        node.get("message", ""),
        waits_for,
        daemon=bool(node.get("daemoned")),
        attempts=node["attempts"],
    )


def _at_exit(state: StepState) -> StepState:
    return StepState(**vars(state) | {"exit_handler": True})
