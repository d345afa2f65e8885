"""What DAGs and step templates have in common: children that are open, children that must wait, hooks, outputs.

A boundary is done when nothing in it is open. `limited` holds the starts that parallelism holds
back, in the order in which they are to be made.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions import ExpressionError, decide
from posttrain.engine.expressions.gotext import to_text
from posttrain.engine.graph.fanout import loops
from posttrain.engine.nodes import FULFILLED, RETRY, Node, hooked
from posttrain.engine.run.bodies import Body
from posttrain.engine.run.errors import LimitReached, TemplateError
from posttrain.engine.scope import Referred, ScopeError, TemplateScope, artifacts_of, variables_of
from posttrain.engine.templates import REFERENCES, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.calls import Call
    from posttrain.engine.run.hooks import Hooks

JSON = dict[str, Any]
_RESULT = re.compile(r"(tasks|steps)\.([-\w]+)\.outputs\.result|(tasks|steps)\['([-\w]+)'\]\.outputs.result")


class Boundary(Body):
    """See the module. `family` is how its members are named in tags: tasks or steps."""

    family = ""

    def __init__(self, call: Call, name: str, template: JSON, flags: JSON | None):
        super().__init__(call, name, template, flags)
        self.open: set[str] = set()
        self.limited: deque[Callable[[], None]] = deque()
        self.hooks: dict[str, Hooks] = {}
        self.over = False

    @cached_property
    def captured(self) -> set[str]:
        """Members whose result somebody in this template asks for; only theirs is kept."""
        text = json.dumps(self.call.raw_template, ensure_ascii=False)
        return {found[2] or found[4] for found in _RESULT.finditer(text) if (found[1] or found[3]) == self.family}

    # -- scope

    def scope(self, find: Callable[[str], Referred | None], names: Callable[[], list[str]]) -> TemplateScope:
        inputs = self.template.get("inputs") or {}
        return TemplateScope(self.family, find, names, inputs, self.run.globals, self.run.global_artifacts)

    def referred(self, node: Node) -> Referred:
        """What a node offers to others; of a retried one, what its last attempt does."""
        if node["type"] == RETRY:
            attempts = self.run.state.children(node)
            node = next((one for one in reversed(attempts) if not hooked(one)), node)
        return Referred(variables_of(node), artifacts_of(node))

    def outputs(self, scope: TemplateScope) -> JSON | None:
        """The template's own outputs. Raises TemplateError."""
        declared = self.template.get("outputs") or {}
        found: JSON = {}
        for parameter in declared.get("parameters") or []:
            kept = {key: one for key, one in parameter.items() if key != "valueFrom"}
            found.setdefault("parameters", []).append({**kept, "value": self._output(parameter, scope)})
        for artifact in declared.get("artifacts") or []:
            if not (artifact.get("from") or artifact.get("fromExpression")):
                continue
            try:
                resolved = scope.resolve_artifact(artifact)
            except ScopeError as error:
                if "Unable to resolve" in str(error) and artifact.get("optional"):
                    continue
                raise TemplateError(f"unable to resolve outputs from scope: {error}") from None
            kept = {"globalName": artifact["globalName"]} if artifact.get("globalName") else {}
            found.setdefault("artifacts", []).append({**resolved, **kept})
        return found or None

    def _output(self, parameter: JSON, scope: TemplateScope) -> str:
        source = parameter.get("valueFrom")
        if source is None:
            raise TemplateError("output parameters must have a valueFrom specified")
        try:
            return to_text(scope.output(source))
        except (ScopeError, ExpressionError) as error:
            if source.get("default") is not None:
                return source["default"]
            raise TemplateError(str(error)) from None

    # -- limits

    def try_start(self, start: Callable[[], None]) -> None:
        """Run `start` now, or when parallelism allows."""
        if self.limited:
            self.limited.append(start)
            return
        try:
            start()
        except LimitReached:
            self.limited.append(start)
            self.run.limited[self.name] = self

    def release(self) -> None:
        """Something ended: start what had to wait, as far as it goes."""
        while self.limited and not self.over:
            start = self.limited[0]
            try:
                start()
            except LimitReached:
                return
            self.limited.popleft()
        self.run.limited.pop(self.name, None)

    def hook_done(self, hooks: Hooks) -> None:
        """A hook of a step or task has ended."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The workflow is being stopped: look a last time at what is due."""
        raise NotImplementedError

    def check_fail_fast(self) -> None:
        """With failFast on the template: once a child is bad and no pod is left, the template has failed."""
        raise NotImplementedError

    # -- endings

    def finish(self, phase: str, message: str | None = None) -> None:
        """The end of the node: its daemons are ended, nothing more starts."""
        self.over = True
        self.limited.clear()
        self.run.limited.pop(self.name, None)
        if self.node is not None and self.node["phase"] not in FULFILLED:
            self.run.state.mark(self.name, phase, message)
        self.run.end_daemons(self.id)
        self.changed()

    def broken(self, error: TemplateError) -> None:
        """The template cannot be completed."""
        self.over = True
        self.limited.clear()
        self.run.limited.pop(self.name, None)
        self.run.end_daemons(self.id)
        self.call.body_failed(self, error)

    def outbound(self, nodes: list[Node]) -> None:
        """Note the nodes that what follows this template hangs on."""
        found: dict[str, None] = {}
        for node in nodes:
            for id in outbound_nodes(node, self.run.state.nodes.get):
                found.setdefault(id)
        own = self.node
        if own is not None and found:
            self.run.state.change(own, {"outboundNodes": list(found)})


def outbound_nodes(node: Node, node_of: Callable[[str], Node | None]) -> list[str]:
    """Ids of the innermost last nodes of a node: what comes after it hangs under these."""
    children = node.get("children") or []
    match node["type"]:
        case "Skipped" | "Suspend" | "Pod":
            return [node["id"]]
        case "TaskGroup":
            if not children:
                return [node["id"]]
            found = [node_of(id) for id in children]
            return [id for one in found if one is not None and not hooked(one) for id in outbound_nodes(one, node_of)]
        case "Retry":
            return children[-1:]
    found = [node_of(id) for id in node.get("outboundNodes") or []]
    return [id for one in found if one is not None for id in outbound_nodes(one, node_of)]


def certainly_false(task: JSON, scope: TemplateScope) -> bool:
    """Whether a step or task is skipped before anything else of it is looked at.

    Raises ExpressionError for a `when` that cannot be computed and needs no item, and what `substitute` raises.
    """
    when = substitute(task.get("when") or "", scope, REFERENCES)
    try:
        return not decide(when)
    except ExpressionError:
        if loops(task):
            return False  # it may hold an item, which is not there yet
        raise


def with_artifacts(task: JSON, scope: TemplateScope) -> JSON:
    """The task with the artifacts that its arguments take from elsewhere. Raises ScopeError."""
    listed = (task.get("arguments") or {}).get("artifacts")
    if not listed:
        return task
    artifacts: list[JSON] = []
    for artifact in listed:
        if not (artifact.get("from") or artifact.get("fromExpression")):
            artifacts.append(artifact)
            continue
        try:
            artifacts.append(scope.resolve_artifact(artifact))
        except ScopeError:
            if not artifact.get("optional"):
                raise
    return {**task, "arguments": {**task["arguments"], "artifacts": artifacts}}
