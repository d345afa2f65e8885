"""Nodes: the entries of `status.nodes`, named, numbered and judged as the controller does. Pure.

A node is the JSON object that Argo writes; times in it are whole seconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

JSON = dict[str, Any]
Node = dict[str, Any]

ENDED = ("Succeeded", "Failed", "Error")  # it ran, or was meant to
FULFILLED = (*ENDED, "Skipped", "Omitted")
BAD = ("Failed", "Error")
ACTIVE = ("Pending", "Running")

POD, STEPS, GROUP, DAG, FAN, RETRY, SKIPPED, SUSPEND = (
    "Pod", "Steps", "StepGroup", "DAG", "TaskGroup", "Retry", "Skipped", "Suspend",
)  # fmt: skip


def fulfilled(node: Node) -> bool:
    """Nothing more is waited for: it has ended, or is a daemon that is up."""
    return node["phase"] in FULFILLED or bool(node.get("daemoned") and node["phase"] != "Pending")


def ended(node: Node) -> bool:
    """It ran to an end, good or bad (a skipped or omitted node did not)."""
    return node["phase"] in ENDED


def bad(node: Node) -> bool:
    return node["phase"] in BAD


def hooked(node: Node) -> bool:
    """Whether it hangs under another as its hook (an attempt of a hook hangs under the hook's Retry node)."""
    return bool((node.get("nodeFlag") or {}).get("hooked")) and (node["type"] == RETRY or not retried(node))


def retried(node: Node) -> bool:
    return bool((node.get("nodeFlag") or {}).get("retried"))


@lru_cache(maxsize=1 << 16)
def fnv32a(text: str) -> int:
    """The hash in a node's id and in a pod's name."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def node_id(workflow: str, name: str) -> str:
    return workflow if name == workflow else f"{workflow}-{fnv32a(name)}"


def pod_name(workflow: str, id: str, template: str) -> str:
    """The name of a node's pod: the workflow's for the entry node, else workflow, template and the id's hash."""
    if id == workflow:
        return workflow
    prefix = f"{workflow}-{template}"[: 253 - 11]
    return f"{prefix}-{id.removeprefix(f'{workflow}-')}"


_SEPARATOR = re.compile(r"^(\[\d+\])?\.")


def display_name(name: str, boundary_name: str | None) -> str:
    """The part of a node's name that its boundary did not give it."""
    if boundary_name is None:
        return name
    return _SEPARATOR.sub("", name.removeprefix(boundary_name))


def within(name: str, boundary: str) -> bool:
    """Whether a node of this name stands inside the template whose node is `boundary`."""
    return name.startswith((f"{boundary}.", f"{boundary}[", f"{boundary}("))


def task_name(name: str) -> str:
    """The step or task that a node's name ends with, without items, attempts and groups."""
    opener = ""
    end = 0
    for place in range(len(name) - 1, -1, -1):
        letter = name[place]
        if letter == opener:
            opener = ""
        elif opener:
            continue
        elif letter in ")]":
            opener = "(" if letter == ")" else "["
        else:
            end = place + 1
            break
    return name[:end].rpartition(".")[2]


def parameters(node: Node, side: str = "outputs") -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in (node.get(side) or {}).get("parameters") or []}
