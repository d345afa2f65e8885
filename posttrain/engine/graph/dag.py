"""The plan of a DAG and its phase. Pure.

Only the targets (by default the leaves) decide the phase. A target that was omitted or skipped takes
the phase of the branch it hangs on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from posttrain.engine.graph.depends import Dependencies, dependencies
from posttrain.engine.nodes import BAD, RETRY, Node, ended, fulfilled, hooked

JSON = dict[str, Any]


class Plan:
    """Tasks by name, who depends on whom, which of them are wanted, and in which order they are looked at."""

    def __init__(self, dag: JSON):
        self.tasks: dict[str, JSON] = {task["name"]: task for task in dag.get("tasks") or []}
        self.needs: dict[str, Dependencies] = {
            name: dependencies(task, self.tasks.get) for name, task in self.tasks.items()
        }
        self.dependents: dict[str, list[str]] = {name: [] for name in self.tasks}
        for name, needed in self.needs.items():
            for other in needed.names:
                self.dependents.setdefault(other, []).append(name)
        if dag.get("target"):
            self.targets = dag["target"].split(" ")
        else:
            self.targets = sorted(name for name in self.tasks if not self.dependents[name])
        self.order: dict[str, int] = {}
        for target in self.targets:
            self._visit(target)

    def _visit(self, target: str) -> None:
        """Number a target and all it needs, what is needed first (without recursion: chains are long)."""
        stack: list[tuple[str, Iterable[str]]] = [(target, iter(self._needed(target)))] if target in self.tasks else []
        seen = {target}
        while stack:
            name, rest = stack[-1]
            below = next((one for one in rest if one not in seen and one not in self.order and one in self.tasks), None)
            if below is None:
                stack.pop()
                self.order.setdefault(name, len(self.order))
            else:
                seen.add(below)
                stack.append((below, iter(self._needed(below))))

    def _needed(self, name: str) -> tuple[str, ...]:
        return self.needs[name].names

    def is_ancestor(self, ancestor: str, task: str) -> bool:
        """Whether `task` depends on `ancestor`, however far off; near ones are found first."""
        seen, queue = {task}, deque([task])
        while queue:
            for name in self.needs[queue.popleft()].names:
                if name == ancestor:
                    return True
                if name not in seen and name in self.needs:
                    seen.add(name)
                    queue.append(name)
        return False

    def ancestors(self, task: str) -> list[str]:
        """Every task that `task` depends on."""
        seen: dict[str, None] = {}
        queue = deque([task])
        while queue:
            for name in self.needs[queue.popleft()].names:
                if name not in seen and name in self.needs:
                    seen[name] = None
                    queue.append(name)
        return list(seen)


def retry_children(node: Node, node_of: Callable[[str], Node | None]) -> list[str]:
    """Where a walk goes on below a Retry node: below its attempts, and at its hooks."""
    below: list[str] = []
    for child_id in reversed(node.get("children") or []):
        child = node_of(child_id)
        if child is not None:
            below += [child_id] if hooked(child) else child.get("children") or []
    return below


def assess(
    boundary: Node,
    targets: list[tuple[str, JSON]],
    node_of: Callable[[str], Node | None],
    *,
    fail_fast: bool,
) -> str:
    """The phase of a DAG: Running, Succeeded, Failed or Error.

    `targets` are (node id, task) of the tasks that decide; `node_of` gives a node by id.
    """
    phases: dict[str, str] = {id: "" for id, _ in targets}
    queue = deque((child, "Succeeded") for child in boundary.get("children") or [])
    seen = set(queue)
    while queue:
        id, branch = queue.popleft()
        node = node_of(id)
        if node is None or not fulfilled(node):
            return "Running"
        if ended(node):
            branch = node["phase"]
        if id in phases and phases[id] not in BAD:
            phases[id] = branch
        below = retry_children(node, node_of) if node["type"] == RETRY else node.get("children") or []
        for child in below:
            if (child, branch) not in seen:
                seen.add((child, branch))
                queue.append((child, branch))
    return _verdict([(phases[id], task) for id, task in targets], fail_fast)


def _verdict(targets: list[tuple[str, JSON]], fail_fast: bool) -> str:
    result = "Succeeded"
    for phase, task in targets:
        if phase == "":
            result = "Running"
            if not fail_fast:
                break
        elif phase in BAD and not continues_on(task, phase):
            result = phase
            if fail_fast:
                break
    return result


def continues_on(task: JSON, phase: str) -> bool:
    """Whether `continueOn` excuses this phase."""
    excused = task.get("continueOn") or {}
    return bool(excused.get("error") if phase == "Error" else excused.get("failed") if phase == "Failed" else False)
