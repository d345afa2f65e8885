"""Which tasks a task depends on, and whether what became of them lets it run. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.engine.expressions import ExpressionError, evaluate_bool
from posttrain.engine.nodes import FAN, Node

JSON = dict[str, Any]

WORDS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
ITEM_WORDS = ("AnySucceeded", "AllFailed")
_NAME = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9]*?)\.([A-Z][a-zA-Z]+)|([a-zA-Z0-9][-a-zA-Z0-9]*)")


class DependsError(Exception):
    """A `depends` that cannot be computed; the message is the controller's."""


@dataclass(frozen=True)
class Dependencies:
    """`names` as they are written, in order; `logic` with bare names spelled out; `by_items`: those asked of items."""

    names: tuple[str, ...]
    logic: str
    by_items: frozenset[str]


def dependencies(task: JSON, task_of: Callable[[str], JSON | None]) -> Dependencies:
    """What `depends`, or else `dependencies`, of a task says."""
    if task.get("depends"):
        text = task["depends"]
    else:
        text = " && ".join(_spelled_out(name, task_of(name)) for name in task.get("dependencies") or [])
    names: dict[str, None] = {}
    by_items: set[str] = set()

    def note(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        names.setdefault(name)
        if found[2] in ITEM_WORDS:
            by_items.add(name)
        return found[0] if found[1] else _spelled_out(name, task_of(name))

    logic = _NAME.sub(note, text)
    return Dependencies(tuple(names), logic, frozenset(by_items))


def _spelled_out(name: str, task: JSON | None) -> str:
    words = ["Succeeded", "Skipped", "Daemoned"]
    excused = (task or {}).get("continueOn") or {}
    words += ["Errored"] * bool(excused.get("error")) + ["Failed"] * bool(excused.get("failed"))
    return "(" + " || ".join(f"{name}.{word}" for word in words) + ")"


def unknown_words(depends: str) -> list[tuple[str, str]]:
    """(task, word) of every status word that does not exist."""
    return [(found[1], found[2]) for found in _NAME.finditer(depends) if found[1] and found[2] not in WORDS]


def results(node: Node, children: Callable[[Node], list[Node]]) -> dict[str, bool]:
    """What the status words say of a node; `children` gives the items of a fanned-out task."""
    phase = node["phase"]
    items = [one["phase"] for one in children(node)] if node["type"] == FAN else []
    return {
        "Succeeded": phase == "Succeeded",
        "Failed": phase == "Failed",
        "Errored": phase == "Error",
        "Skipped": phase == "Skipped",
        "Omitted": phase == "Omitted",
        "Daemoned": bool(node.get("daemoned")) and phase != "Pending",
        "AnySucceeded": "Succeeded" in items,
        "AllFailed": bool(items) and all(one == "Failed" for one in items),
    }


def holds(logic: str, results_of: Mapping[str, Mapping[str, bool]]) -> bool:
    """Whether a spelled-out `depends` is true. Raises DependsError."""
    plain = logic.replace("-", "_")
    try:
        return evaluate_bool(plain, {name.replace("-", "_"): words for name, words in results_of.items()})
    except ExpressionError as error:
        prefix = f"unable to evaluate expression '{plain}': "
        raise DependsError(prefix + str(error).removeprefix(prefix)) from None
