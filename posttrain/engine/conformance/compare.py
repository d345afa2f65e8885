"""What a run came to, put so that two engines compare, and how two such descriptions differ. Pure.

Left out of a comparison: progress, the order of children, and the wording of a message behind its
first clause where it is not the controller's own (Kubernetes', a container runtime's, a library's).
"""

from __future__ import annotations

import re
from typing import Any

JSON = dict[str, Any]

_KEPT = {"type": "type", "phase": "phase", "message": "message", "displayName": "displayName"}


def describe(workflow: JSON) -> JSON:
    """A Workflow object as a recorded result has it."""
    status = workflow.get("status") or {}
    nodes = status.get("nodes") or {}
    result = {
        "phase": status.get("phase", ""),
        "message": status.get("message"),
        "outputs": _parameters(status.get("outputs")),
        "nodes": {one["name"]: _node(one, nodes) for one in sorted(nodes.values(), key=lambda one: one["name"])},
    }
    return _clean({key: value for key, value in result.items() if value not in (None, {}, "")}, workflow)


def _parameters(io: JSON | None) -> dict[str, str]:
    listed = (io or {}).get("parameters") or []
    return {one["name"]: one["value"] for one in listed if one.get("value") is not None}


def _node(node: JSON, nodes: dict[str, JSON]) -> JSON:
    outputs = node.get("outputs") or {}
    flags = node.get("nodeFlag") or {}
    kept = {name: node.get(key) for name, key in _KEPT.items()}
    kept |= {
        "template": node.get("templateName") or (node.get("templateRef") or {}).get("template"),
        "inputs": _parameters(node.get("inputs")),
        "outputs": _parameters(outputs),
        "inputArtifacts": sorted(one["name"] for one in (node.get("inputs") or {}).get("artifacts") or []),
        "outputArtifacts": sorted(one["name"] for one in outputs.get("artifacts") or []),
        "result": outputs.get("result"),
        "exitCode": outputs.get("exitCode"),
        "daemoned": node.get("daemoned"),
        "hooked": flags.get("hooked"),
        "retried": flags.get("retried"),
        "memoized": (node.get("memoizationStatus") or {}).get("hit"),
        "children": sorted(nodes[id]["name"] for id in node.get("children") or [] if id in nodes),
    }
    return {key: value for key, value in kept.items() if value not in (None, {}, [], "", False)}


def _clean(value: Any, workflow: JSON) -> Any:
    """Without the run's own names: `<workflow>`, `<uid>`, `<NODE>` for its id and `<ip of NODE>` for its address."""
    name, uid = workflow["metadata"]["name"], workflow["metadata"]["uid"]
    ids = {id: one["name"] for id, one in (workflow.get("status") or {}).get("nodes", {}).items() if id != name}
    nodes = (workflow.get("status") or {}).get("nodes", {}).values()
    ids |= {one["podIP"]: f"ip of {one['name']}" for one in nodes if one.get("podIP")}
    known = re.compile("|".join(re.escape(id) for id in sorted(ids, key=len, reverse=True)) or r"(?!)")

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {clean(key): clean(one) for key, one in value.items()}
        if isinstance(value, list):
            return [clean(one) for one in value]
        if isinstance(value, str):
            value = known.sub(lambda found: f"<{ids[found[0]]}>", value)
            return value.replace(uid, "<uid>").replace(name, "<workflow>")
        return value

    return clean(value)


def differences(ours: JSON, theirs: JSON) -> list[str]:
    """Each way in which our description differs from the recorded one, volatile fields aside."""
    volatile = [tuple(one.split("/")) for one in theirs.get("volatile") or []]
    found: list[str] = []
    for field in ("phase", "message", "outputs", "unfinished", "gone", "cron", "operations"):
        _compare((field,), ours.get(field), theirs.get(field), volatile, found)
    mine, wanted = ours.get("nodes") or {}, theirs.get("nodes") or {}
    for name in sorted({*mine, *wanted}):
        if name not in wanted:
            found.append(f"{name}: a node that Argo has not: {mine[name].get('type')} {mine[name].get('phase')}")
        elif name not in mine:
            found.append(f"{name}: no such node; Argo has {wanted[name].get('type')} {wanted[name].get('phase')}")
        else:
            for field in sorted({*mine[name], *wanted[name]}):
                path = ("nodes", name, field)
                _compare(path, mine[name].get(field), wanted[name].get(field), volatile, found)
    return found


def _compare(path: tuple[str, ...], ours: Any, theirs: Any, volatile: list[tuple[str, ...]], found: list[str]) -> None:
    if _is_volatile(path, volatile):
        return
    if isinstance(ours, dict) or isinstance(theirs, dict):
        mine, wanted = ours or {}, theirs or {}
        if isinstance(mine, dict) and isinstance(wanted, dict):
            for key in sorted({*mine, *wanted}):
                _compare((*path, key), mine.get(key), wanted.get(key), volatile, found)
            return
    if path[-1] == "operations" and ours and theirs:
        ours, theirs = [[one["ok"] for one in side] for side in (ours, theirs)]
    same = same_message(ours, theirs) if path[-1] == "message" else _plain(ours) == _plain(theirs)
    if not same:
        where = " ".join(path[1:]) if path[0] == "nodes" else " ".join(path)
        found.append(f"{where}: {_short(ours)} instead of {_short(theirs)}")


def _is_volatile(path: tuple[str, ...], volatile: list[tuple[str, ...]]) -> bool:
    text = "/".join(path)
    return any(text == "/".join(one) or text.startswith("/".join(one) + "/") for one in volatile)


def _plain(value: Any) -> Any:
    return None if value in (None, "", {}, [], False) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:159] + "…"


_FOREIGN = (
    r"[-\w.]+: \w+ \(exit code -?\d+\)",  # what a container or the executor says behind its code
    r"failed to evaluate expression",
    r"Unschedulable",
    r"unable to evaluate expression '[^']*'",
    r"Invalid 'when' expression '.*?'",
    r"Failed to evaluate 'when' expresion '.*?'",
    r"withParam value could not be parsed as a JSON list",
    r"invalid label value \"[^\"]*\" for label \"[^\"]*\" and expression \"[^\"]*\"",
    r"failed to initialize semaphore",
    r"a map key must be a quoted string",
)
_FIRST_CLAUSE = re.compile(
    r"((?:error in entry template execution: |task '[^']*' errored: |failed to resolve references: |invalid spec: )*)"
    rf"({'|'.join(_FOREIGN)})"
)


def same_message(ours: str | None, theirs: str | None) -> bool:
    """Whether two messages say the same."""
    ours, theirs = ours or "", theirs or ""
    if ours == theirs:
        return True
    mine, wanted = _FIRST_CLAUSE.match(ours), _FIRST_CLAUSE.match(theirs)
    return bool(mine and wanted and mine[0] == wanted[0])
