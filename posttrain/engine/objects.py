"""The Workflow object of a run: made from a manifest, and as it is shown."""

from __future__ import annotations

import json
import random
import string
import time
import uuid
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from posttrain.engine.expressions.dates import shown
from posttrain.engine.manifest import Manifest
from posttrain.engine.nodes import FULFILLED, POD, SUSPEND
from posttrain.engine.run.state import RunState
from posttrain.errors import UserError

JSON = dict[str, Any]


def letters() -> str:
    """Five letters, as Argo puts behind a generateName."""
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


def with_parameters(arguments: JSON, parameters: Mapping[str, str]) -> JSON:
    """Arguments with some parameters' values replaced, or added."""
    listed = [dict(one) for one in arguments.get("parameters") or []]
    known = {one["name"]: one for one in listed}
    for name, value in parameters.items():
        if name in known:
            known[name].pop("valueFrom", None)
            known[name]["value"] = str(value)
        else:
            listed.append({"name": name, "value": str(value)})
    return {**arguments, "parameters": listed} if listed else arguments


def workflow_of(manifest: Manifest, parameters: Mapping[str, str], name: str | None, namespace: str) -> JSON:
    """The Workflow object of a new run. Raises UserError for a manifest that describes no run."""
    document = deepcopy(manifest.document)
    if document["kind"] == "CronWorkflow":
        raise UserError(
            "a CronWorkflow makes runs by its schedule", field=manifest.file, remedy="use posttrain schedule"
        )
    metadata = document["metadata"]
    chosen = name or metadata.get("name") or f"{metadata['generateName']}{letters()}"
    kept = {key: metadata[key] for key in ("labels", "annotations", "generateName") if metadata.get(key)}
    spec = {**document["spec"], "arguments": with_parameters(document["spec"].get("arguments") or {}, parameters)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": chosen, "namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": shown(time.time()),
            **kept,
        },
        "spec": spec if spec["arguments"] else {key: value for key, value in spec.items() if key != "arguments"},
        "status": {},
    }  # fmt: skip


def workflow_object(state: RunState) -> JSON:
    """A run as Argo gives it, with its progress and conditions, and how its pods' names are made."""
    workflow = json.loads(json.dumps(state.workflow))
    workflow["metadata"].setdefault("annotations", {})["workflows.argoproj.io/pod-name-format"] = "v2"
    status = workflow["status"]
    work = [one for one in status.get("nodes", {}).values() if one["type"] in (POD, SUSPEND)]
    for node in work:
        node["progress"] = "1/1" if node["phase"] == "Succeeded" else "0/1"
    if status.get("phase"):
        over = status["phase"] in FULFILLED
        running = any(one["type"] == POD and one["phase"] == "Running" for one in work)
        status["progress"] = f"{sum(one['phase'] == 'Succeeded' for one in work)}/{len(work)}"
        status["conditions"] = [{"type": "PodRunning", "status": str(running)}]
        status["conditions"] += [{"type": "Completed", "status": "True"}] if over else []
    return workflow
