"""The state of one run in memory: the Workflow object with its nodes, and what has changed since it was last stored.

Every change goes through here, so that the journal misses none. Beside the nodes stand figures that
would take a walk over all of them: active children of each boundary, active pods, exact times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from posttrain.engine.expressions.dates import read_shown, shown
from posttrain.engine.nodes import ACTIVE, BAD, DAG, FULFILLED, POD, STEPS, Node, display_name, node_id

JSON = dict[str, Any]
Event = dict[str, Any]


class RunState:
    """`workflow` is the Workflow object; its `status.nodes` are the nodes by id.

    `operations` collects changes for the journal and `events` what a person may want to hear of;
    `drain` hands both over.
    """

    def __init__(self, workflow: JSON, clock: Callable[[], float] = time.time):
        self.workflow, self.clock = workflow, clock
        self.status: JSON = workflow.setdefault("status", {})
        self.nodes: dict[str, Node] = self.status.setdefault("nodes", {})
        self.name: str = workflow["metadata"]["name"]
        self.started: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        self.operations: list[list[Any]] = []
        self.events: list[Event] = []
        self.pods_by_phase: Counter[str] = Counter()
        self._children: dict[str, set[str]] = {}
        self._active: Counter[str] = Counter()
        self._active_pods: Counter[str] = Counter()
        self._bad: Counter[str] = Counter()
        for node in self.nodes.values():
            self._count(node, 1)

    def id_of(self, name: str) -> str:
        """The id of a node that is there or will be made; of two names with one hash, the later gets another id."""
        id = node_id(self.name, name)
        while (there := self.nodes.get(id)) is not None and there["name"] != name:
            id += "x"
        return id

    def node(self, name: str) -> Node | None:
        return self.nodes.get(self.id_of(name))

    def children(self, node: Node) -> list[Node]:
        """The nodes that hang under another and are (still) there, its hooks among them."""
        found = [self.nodes.get(id) for id in node.get("children") or []]
        return [one for one in found if one is not None]

    def create(
        self, name: str, kind: str, phase: str, *, holder: JSON, scope: str, boundary: str = "", message: str = "",
        flags: JSON | None = None, inputs: JSON | None = None,
    ) -> Node:  # fmt: skip
        """A new node. `holder` is the step or task that called for it, `boundary` the id of the template around it."""
        id = self.id_of(name)
        assert id not in self.nodes, f"node {name} is there already"
        above = self.nodes.get(boundary)
        now = self.clock()
        node: Node = {
            "id": id,
            "name": name,
            "displayName": display_name(name, above["name"] if above else None),
            "type": kind,
            "templateScope": scope,
            "phase": phase,
            "startedAt": shown(now),
        }
        node |= {
            key: holder[own]
            for key, own in (("templateName", "template"), ("templateRef", "templateRef"))
            if holder.get(own)
        }
        optional = {"boundaryID": boundary, "message": message, "nodeFlag": flags, "inputs": inputs}
        node |= {key: value for key, value in optional.items() if value}
        self.started[id] = now
        if phase in FULFILLED:
            self.finished[id] = now
            node["finishedAt"] = shown(now)
        self.nodes[id] = node
        self._count(node, 1)
        self.operations.append(["n", id, dict(node), now])
        self._tell(node)
        return node

    def mark(self, name: str, phase: str, message: str | None = None) -> Node:
        """Change a node's phase and, where one is given, its message; "" takes a message away."""
        node = self.node(name)
        assert node is not None, f"there is no node {name}"
        changes: JSON = {} if node["phase"] == phase else {"phase": phase}
        if message is not None and message != node.get("message", ""):
            changes["message"] = message or None
        if phase in FULFILLED and "finishedAt" not in node:
            changes["finishedAt"] = shown(self.finished.setdefault(node["id"], self.clock()))
        self.change(node, changes)
        return node

    def change(self, node: Node, changes: JSON) -> None:
        """Set fields of a node; None takes one away."""
        changes = {key: value for key, value in changes.items() if node.get(key) != value}
        if not changes:
            return
        counted = "phase" in changes or "synchronizationStatus" in changes
        if counted:
            self._count(node, -1)
        for key, value in changes.items():
            if value is None:
                node.pop(key, None)
            else:
                node[key] = value
        if counted:
            self._count(node, 1)
            if node["phase"] in FULFILLED and node["id"] not in self.finished:
                self.finished[node["id"]] = self.clock()
        self.operations.append(["n", node["id"], changes, self.clock()])
        if "phase" in changes or changes.get("daemoned"):
            self._tell(node)

    def add_child(self, parent: Node, child: Node | str) -> None:
        """Hang a node (or a node's id) below another, once."""
        child_id = child if isinstance(child, str) else child["id"]
        children = parent.setdefault("children", [])
        known = self._children.get(parent["id"])
        if known is None:
            known = self._children[parent["id"]] = set(children)
        if child_id not in known:
            known.add(child_id)
            children.append(child_id)
            self.operations.append(["c", parent["id"], child_id])

    def drop_child(self, parent: Node, child_id: str) -> None:
        if child_id in (parent.get("children") or []):
            self.change(parent, {"children": [one for one in parent["children"] if one != child_id]})
            self._children.pop(parent["id"], None)

    def delete(self, ids: Iterable[str]) -> None:
        """Forget nodes altogether."""
        for id in ids:
            node = self.nodes.pop(id, None)
            if node is not None:
                self._count(node, -1)
                self.started.pop(id, None)
                self.finished.pop(id, None)
                self._children.pop(id, None)
                self.operations.append(["d", id])

    def set_status(self, **changes: Any) -> None:
        """Set fields of the workflow's own status; None takes one away."""
        changes = {key: value for key, value in changes.items() if self.status.get(key) != value}
        for key, value in changes.items():
            if value is None:
                self.status.pop(key, None)
            else:
                self.status[key] = value
        if changes:
            self.operations.append(["s", changes])
            if "phase" in changes:
                self.events.append(
                    {"time": self.clock(), "type": "workflow", "node": "", "phase": changes["phase"] or "",
                     "message": self.status.get("message", "")}
                )  # fmt: skip

    def keep_template(self, key: str, template: JSON) -> None:
        """Keep a template that the workflow has from elsewhere, for whoever looks at the run."""
        kept = self.status.get("storedTemplates") or {}
        if key not in kept:
            self.set_status(storedTemplates={**kept, key: template})

    def set_part(self, part: str, **changes: Any) -> None:
        """Set fields of `spec` or `metadata`; None takes one away."""
        table = self.workflow.setdefault(part, {})
        for key, value in changes.items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        self.operations.append(["p", part, changes])

    def say(self, kind: str, node: str, message: str) -> None:
        """An event that changes no phase."""
        self.events.append({"time": self.clock(), "type": kind, "node": node, "phase": "", "message": message})

    def drain(self) -> tuple[list[list[Any]], list[Event]]:
        """The changes and events since the last call."""
        operations, events = self.operations, self.events
        self.operations, self.events = [], []
        return operations, events

    def start_of(self, node: Node) -> float:
        return self.started.get(node["id"]) or read_shown(node["startedAt"])

    def finish_of(self, node: Node) -> float:
        found = self.finished.get(node["id"])
        if found is None:
            found = read_shown(node["finishedAt"]) if node.get("finishedAt") else self.clock()
        return found

    def active_children(self, boundary: str) -> int:
        """Pods, DAGs and step templates of a boundary that are pending or running."""
        return self._active[boundary]

    def active_pods(self, boundary: str | None = None) -> int:
        return self._active_pods.total() if boundary is None else self._active_pods[boundary]

    def bad_children(self, boundary: str) -> int:
        return self._bad[boundary]

    def _count(self, node: Node, by: int) -> None:
        boundary, phase = node.get("boundaryID", ""), node["phase"]
        if node["type"] in (POD, STEPS, DAG):
            if phase in ACTIVE:
                self._active[boundary] += by
                if node["type"] == POD and not node.get("synchronizationStatus"):
                    self._active_pods[boundary] += by
            elif phase in BAD:
                self._bad[boundary] += by
        if node["type"] == POD:
            self.pods_by_phase[phase] += by

    def _tell(self, node: Node) -> None:
        self.events.append(
            {"time": self.clock(), "type": node["type"], "node": node["name"], "phase": node["phase"],
             "message": node.get("message", "") or ("ready" if node.get("daemoned") else "")}
        )  # fmt: skip


def replay(
    workflow: JSON, operations: Iterable[list[Any]], started: dict[str, float], finished: dict[str, float]
) -> None:
    """Apply journalled operations to a Workflow object and to the exact times of its nodes."""
    nodes = workflow.setdefault("status", {}).setdefault("nodes", {})
    for operation in operations:
        match operation:
            case ["n", id, changes, now]:
                _replay_node(nodes, id, changes, now, started, finished)
            case ["c", parent, child]:
                if parent in nodes and child not in nodes[parent].setdefault("children", []):
                    nodes[parent]["children"].append(child)
            case ["d", id]:
                for table in (nodes, started, finished):
                    table.pop(id, None)
            case ["s", changes]:
                _merge(workflow["status"], changes)
            case ["p", part, changes]:
                _merge(workflow.setdefault(part, {}), changes)


def _replay_node(
    nodes: JSON, id: str, changes: JSON, now: float, started: dict[str, float], finished: dict[str, float]
) -> None:
    if id not in nodes:
        nodes[id] = {}
        started[id] = now
    _merge(nodes[id], changes)
    if changes.get("phase") in FULFILLED:
        finished.setdefault(id, now)


def _merge(table: JSON, changes: JSON) -> None:
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
