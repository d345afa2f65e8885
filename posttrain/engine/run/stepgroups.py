"""Around the groups of a steps template: their nodes, and what steps may name of the groups before theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posttrain.engine.graph.fanout import gather
from posttrain.engine.nodes import GROUP, SKIPPED, Node, hooked, retried, task_name
from posttrain.engine.run.boundary import certainly_false, outbound_nodes, with_artifacts
from posttrain.engine.run.calls import Call
from posttrain.engine.scope import Referred, ScopeError, TemplateScope
from posttrain.engine.templates import REFERENCES, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.steps import StepsBody

JSON = dict[str, Any]


class StepsScope:
    """`statuses` holds the phases of the current group's steps, for their hooks."""

    def __init__(self, body: StepsBody):
        self.body = body
        self.statuses: dict[str, str] = {}
        self._offered: dict[str, Referred] = {}

    def now(self) -> TemplateScope:
        scope = self.body.scope(self._offered.get, lambda: list(self._offered))
        scope.extra |= self.statuses
        return scope

    def resolve(self, step: JSON) -> JSON:
        """The step with what it refers to filled in. Raises what `substitute` does, ScopeError and ExpressionError."""
        scope = self.now()
        bare = {key: one for key, one in step.items() if key != "hooks"}
        hooks = {"hooks": step["hooks"]} if step.get("hooks") else {}
        if certainly_false(bare, scope):
            return {**bare, "when": substitute(bare["when"], scope, REFERENCES)} | hooks
        try:
            return with_artifacts(substitute(bare, scope, REFERENCES), scope) | hooks
        except ScopeError as error:
            raise ScopeError(f"unable to resolve references: {error}") from None

    def offer(self, steps: list[JSON], name: str, group: Node) -> None:
        """Later groups may read what the steps of a group gave. Raises SubstitutionError where a result is no JSON."""
        state = self.body.run.state
        for step in steps:
            node = state.node(f"{name}.{step['name']}")
            if node is not None:
                self._offered[step["name"]] = self.body.referred(node)
                continue
            prefix = f"{name}.{step['name']}("
            children = [state.nodes[id] for id in group.get("children") or []]
            items = [
                one for one in children
                if one["name"].startswith(prefix) and one["type"] != SKIPPED and not hooked(one) and not retried(one)
            ]  # fmt: skip
            if items:
                self._offered[step["name"]] = Referred(gather(items), {})


def group_node(body: StepsBody) -> Node:
    """The node of the current group, made where it is not there yet, under what came before it."""
    state, name = body.run.state, body.group_name(body.place)
    node = state.node(name)
    if node is None:
        node = state.create(name, GROUP, "Running", holder={}, scope=body.call.inner_source.scope, boundary=body.id)
    own = body.node
    assert own is not None
    if body.place == 0:
        state.add_child(own, node)
        return node
    before = state.node(body.group_name(body.place - 1))
    assert before is not None
    if not before.get("children"):
        state.add_child(before, node)
    for child in [state.nodes[id] for id in before.get("children") or []]:
        for id in outbound_nodes(child, state.nodes.get):
            state.add_child(state.nodes[id], node)
    return node


def take_up_daemons(body: StepsBody, group: Node) -> None:
    """After a restart: the daemons of a group that has passed still run."""
    written = {step["name"]: step for step in body.groups[body.place]}
    for node in [body.run.state.nodes[id] for id in group.get("children") or []]:
        if not node.get("daemoned") or node["name"] in body.calls:
            continue
        step = {**written[task_name(node["name"])], "name": node["displayName"]}
        call = Call(
            body.run, body, node["name"], step, body.call.inner_source, node.get("inputs") or {}, boundary=body,
            depth=body.call.depth + 1, on_exit=body.call.on_exit,
        )  # fmt: skip
        call.execute()
