"""The variables of the workflow: its name, arguments, labels and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from posttrain.engine.expressions import ExpressionError, evaluate, nested, with_functions
from posttrain.engine.expressions.gotext import to_json
from posttrain.engine.manifest.objects import Objects
from posttrain.engine.templates import parameter_json

JSON = dict[str, Any]


class GlobalsError(Exception):
    """An argument that has no value; the message is the controller's."""


_LETTERS = "AaBbCcDdFgHhIjklMmnpRrSTtUuVvWwXxYyZz%"


def workflow_variables(workflow: JSON, spec: JSON, objects: Objects, namespace: str) -> dict[str, str]:
    """Everything under `workflow.` but status, duration and failures. Raises GlobalsError."""
    metadata = workflow["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"]).astimezone(UTC)
    parameters = (spec.get("arguments") or {}).get("parameters") or []
    found = {
        "workflow.name": metadata["name"],
        "workflow.namespace": metadata.get("namespace") or namespace,
        "workflow.mainEntrypoint": spec.get("entrypoint", ""),
        "workflow.serviceAccountName": spec.get("serviceAccountName", ""),
        "workflow.uid": metadata["uid"],
        "workflow.creationTimestamp": metadata["creationTimestamp"],
        "workflow.creationTimestamp.s": str(int(created.timestamp())),
        "workflow.creationTimestamp.RFC3339": metadata["creationTimestamp"],
    }
    found |= {f"workflow.creationTimestamp.{letter}": _strftime(created, letter) for letter in _LETTERS}
    if spec.get("priority") is not None:
        found["workflow.priority"] = str(spec["priority"])
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if "workflows.argoproj.io/scheduled-time" in annotations:
        found["workflow.scheduledTime"] = annotations["workflows.argoproj.io/scheduled-time"]
    listed = to_json([parameter_json(one) for one in parameters], sort_keys=False)
    found |= {"workflow.parameters": listed, "workflow.parameters.json": listed} if parameters else {}
    found |= {f"workflow.parameters.{one['name']}": _value(one, objects) for one in parameters}
    for kind, table, added in (("annotations", annotations, "annotations"), ("labels", labels, "labels")):
        text = to_json(table)
        found |= {f"workflow.{kind}": text, f"workflow.{kind}.json": text}
        found |= {f"workflow.{kind}.{key}": value for key, value in table.items()}
        own = (spec.get("workflowMetadata") or {}).get(added) or {}
        found |= {f"workflow.{kind}.{key}": value for key, value in own.items()}
    return found


def _strftime(moment: datetime, letter: str) -> str:
    if letter == "k":
        return f"{moment.hour:2d}"
    if letter == "l":
        return f"{int(moment.strftime('%I')):2d}"
    return moment.strftime(f"%{letter}")


def _value(parameter: JSON, objects: Objects) -> str:
    if parameter.get("value") is not None:
        return parameter["value"]
    reference = (parameter.get("valueFrom") or {}).get("configMapKeyRef")
    if not reference:
        raise GlobalsError(
            f"either value or valueFrom must be specified in order to set global parameter {parameter['name']}"
        )
    try:
        return objects.parameter(reference.get("name", ""), reference.get("key", ""))
    except LookupError as error:
        default = parameter["valueFrom"].get("default")
        if default is not None:
            return default
        raise GlobalsError(
            f"failed to set global parameter {parameter['name']} from configmap with name {reference.get('name')} "
            f"and key {reference.get('key')}: {error.args[0]}"
        ) from None


def computed_labels(spec: JSON, variables: dict[str, str]) -> dict[str, str]:
    """Labels of `workflowMetadata`, given and computed. Raises ExpressionError with the controller's words."""
    metadata = spec.get("workflowMetadata") or {}
    found = dict(metadata.get("labels") or {})
    for name, source in (metadata.get("labelsFrom") or {}).items():
        text = source.get("expression", "")
        try:
            value = evaluate(text, with_functions(nested(variables)))
        except ExpressionError as error:
            raise ExpressionError(f'failed to evaluate label "{name}" expression "{text}": {error}') from None
        if not isinstance(value, str):
            raise ExpressionError(
                f'failed to evaluate label "{name}" expression "{text}" evaluted to a value that is no string'
            )
        if not valid_label(value):
            raise ExpressionError(
                f'invalid label value "{value}" for label "{name}" and expression "{text}": {_LABEL_RULE}'
            )
        found[name] = value
    for name, value in (metadata.get("labels") or {}).items():
        if not valid_label(value):
            raise ExpressionError(f'invalid label value "{value}" for label "{name}": {_LABEL_RULE}')
    return found


_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def valid_label(value: str) -> bool:
    """Whether Kubernetes takes `value` for a label."""
    if len(value) > 63:
        return False
    inner = value.replace("-", "").replace("_", "").replace(".", "")
    ends = value[:1] + value[-1:]
    return value == "" or (ends.isascii() and ends.isalnum() and inner.isascii() and (inner.isalnum()))
