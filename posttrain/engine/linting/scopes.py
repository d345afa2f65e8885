"""Which variables may be named where. Pure: sets of names, and what is not in them."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from posttrain.engine.graph.dag import Plan
from posttrain.engine.library import KINDS, kind_of
from posttrain.engine.templates import tags

JSON = dict[str, Any]

FIELD_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}")
VALUE_NAME = re.compile(r"[-a-zA-Z0-9_]+")
CHECKED = ("item.", "steps.", "inputs.", "outputs.", "pod.", "workflow.", "tasks.")
_ALWAYS = (
    "outputs.", "workflow.creationTimestamp", "workflow.scheduledTime", "workflow.duration", "tasks.name", "steps.name",
    "node.name",
)  # fmt: skip
ANY_ITEM, ANY_PARAMETER, ANY_ARTIFACT = "item.*", "workflow.outputs.parameters.*", "workflow.outputs.artifacts.*"
_RETRY = ("retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message")
LEAVES = tuple(one for one in KINDS if one not in ("dag", "steps"))
_RESULT_KINDS = ("container", "containerSet", "script", "data", "http", "plugin")


class Statuses:
    """The status of every task that one depends on, however far off; found out when asked for."""

    def __init__(self, plan: Plan, task: str):
        self._plan, self._task = plan, task

    def __contains__(self, name: object) -> bool:
        found = re.fullmatch(r"tasks\.(.+)\.status", str(name))
        return found is not None and self._plan.is_ancestor(found[1], self._task)


def unresolvable(value: Any, *layers: Container[str]) -> str | None:
    """The first simple tag in a JSON tree that must be known and is in none of the layers."""

    def known(name: str) -> bool:
        return any(name in layer for layer in layers)

    for tag in tags(value):
        name = tag.strip()
        if tag.startswith("=") or not name.startswith(CHECKED) or known(name) or "{{" in tag:
            continue
        if name.startswith(_ALWAYS):
            continue
        if name.startswith("item.") and known(ANY_ITEM):
            continue
        if name.startswith("workflow.outputs.parameters.") and known(ANY_PARAMETER):
            continue
        if name.startswith("workflow.outputs.artifacts.") and known(ANY_ARTIFACT):
            continue
        return tag
    return None


def of_inputs(template: JSON) -> set[str]:
    """What a template's inputs let it name."""
    inputs = template.get("inputs") or {}
    leaf = kind_of(template) in LEAVES
    found = {f"inputs.parameters.{one.get('name')}" for one in inputs.get("parameters") or []}
    if found:
        found.add("inputs.parameters")
    for one in inputs.get("artifacts") or []:
        found.add(f"inputs.artifacts.{one.get('name')}")
        if leaf:
            found.add(f"inputs.artifacts.{one.get('name')}.path")
    return found


def of_leaf(template: JSON) -> set[str]:
    """What the text of a template that runs something may name besides its inputs."""
    found: set[str] = set()
    kind = kind_of(template)
    if kind in ("container", "script", "containerSet", "resource", "data"):
        found.add("pod.name")
    if template.get("retryStrategy") is not None:
        found.update(_RETRY)
    if kind in LEAVES:
        outputs = template.get("outputs") or {}
        found |= {
            f"outputs.artifacts.{one.get('name')}.path" for one in outputs.get("artifacts") or [] if one.get("path")
        }
        parameters = outputs.get("parameters") or []
        found |= {
            f"outputs.parameters.{p.get('name')}.path" for p in parameters if (p.get("valueFrom") or {}).get("path")
        }
    return found


def of_items(task: JSON) -> set[str]:
    """What a loop adds."""
    if task.get("withItems"):
        found: set[str] = set()
        for item in task["withItems"]:
            if isinstance(item, list):
                found |= {f"item.[{place}]" for place in range(len(item))}
            elif isinstance(item, dict):
                found |= {f"item.{key}" for key in item}
            else:
                found.add("item")
        return found
    if task.get("withParam"):
        return {"item", ANY_ITEM}
    return {"item"} if task.get("withSequence") is not None else set()


def of_outputs(template: JSON | None, prefix: str, *, aggregate: bool) -> tuple[set[str], set[str]]:
    """What a step or task offers under `prefix`, and what it adds to the variables of the workflow."""
    found = {f"{prefix}.{one}" for one in ("id", "startedAt", "finishedAt", "hostNodeName")}
    added: set[str] = set()
    if template is None:
        return found, added
    kind = kind_of(template)
    if template.get("daemon"):
        found.add(f"{prefix}.ip")
    if kind in _RESULT_KINDS:
        found |= {f"{prefix}.outputs.result", f"{prefix}.exitCode"}
    outputs = template.get("outputs") or {}
    for side, anything in (("parameters", ANY_PARAMETER), ("artifacts", ANY_ARTIFACT)):
        for one in outputs.get(side) or []:
            found.add(f"{prefix}.outputs.{side}.{one.get('name')}")
            if one.get("globalName"):
                added.add(anything if "{{" in one["globalName"] else f"workflow.outputs.{side}.{one['globalName']}")
    if aggregate:
        found.add(f"{prefix}.outputs.parameters")
        if kind in ("script", "containerSet"):
            found |= {f"{prefix}.outputs.result", f"{prefix}.exitCode"}
    return found, added
