"""One step of a workflow again, on the cluster that ran it. Pure.

The workflow object holds all of it: the template, and in the step's node the arguments that it was
given. The same manifest with that one task and no exit handler is therefore the same step.
"""

from __future__ import annotations

from typing import Any

from posttrain.argo.status import LEAVES, nodes_of
from posttrain.errors import UserError

JSON = dict[str, Any]

ENTRYPOINT = "main"
_NOT_AGAIN = ("onExit", "hooks", "shutdown", "suspend", "workflowTemplateRef")


def again(workflow: JSON, step: str) -> JSON:
    """The manifest that runs `step` (its name with - or _) again, under a generated name.

    Raises UserError for a step that did not start, or that serves others.
    """
    node = _node(workflow, step.replace("_", "-"))
    template = _template(workflow, node)
    if template.get("daemon"):
        raise UserError("is a service: it has no outputs to compare", field="STEP", value=step)
    arguments = {"parameters": [{k: p[k] for k in ("name", "value")} for p in _parameters(node)]}
    task = {"name": node["displayName"], "template": template["name"], "arguments": arguments}
    spec = {key: value for key, value in _spec(workflow).items() if key not in _NOT_AGAIN}
    labels = workflow["metadata"].get("labels") or {}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "generateName": f"{workflow['metadata']['name']}-rerun-",
            "labels": {k: v for k, v in labels.items() if not k.startswith("workflows.argoproj.io/")},
        },
        "spec": spec
        | {"entrypoint": ENTRYPOINT, "templates": [template, {"name": ENTRYPOINT, "dag": {"tasks": [task]}}]},
    }


def _node(workflow: JSON, step: str) -> JSON:
    nodes = nodes_of(workflow).values()
    leaves = [n for n in nodes if n.get("type") in LEAVES and not n.get("nodeFlag", {}).get("retried")]
    found = next((node for node in leaves if node["displayName"] == step), None)
    if found is None or not found.get("inputs"):
        known = ", ".join(sorted(n["displayName"] for n in leaves if n.get("inputs")))
        raise UserError("has not run", field="STEP", value=step, remedy=f"known: {known or 'none'}")
    return found


def _parameters(node: JSON) -> list[JSON]:
    return [p for p in node["inputs"].get("parameters") or [] if "value" in p]


def _template(workflow: JSON, node: JSON) -> JSON:
    return next(t for t in _spec(workflow)["templates"] if t["name"] == node["templateName"])


def _spec(workflow: JSON) -> JSON:
    """What was run: the spec, or of a workflow that came from a template, the one that Argo resolved."""
    return workflow["status"].get("storedWorkflowTemplateSpec") or workflow["spec"]
