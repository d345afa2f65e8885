"""Starting a task of a DAG: once what it depends on is over it is resolved, and left out, fanned out or called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions import ExpressionError, decide
from posttrain.engine.graph.depends import DependsError, holds, results
from posttrain.engine.graph.fanout import LoopError, expand, loops
from posttrain.engine.nodes import FAN, FULFILLED, SKIPPED, Node, fulfilled, hooked
from posttrain.engine.run.boundary import certainly_false, outbound_nodes, with_artifacts
from posttrain.engine.run.calls import Call
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.scope import ScopeError
from posttrain.engine.templates import REFERENCES, MissingVariable, SubstitutionError, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.dag import DagBody

JSON = dict[str, Any]


class Fan:
    """A fanned-out task: its items, in order, and how many of them are open."""

    def __init__(self, task: str, items: list[tuple[str, JSON]]):
        self.task, self.items = task, items
        self.open = {name for name, _ in items}


class TaskStart:
    """`blocked` holds, by task, the variable that it waits for although nothing gives it any more."""

    def __init__(self, dag: DagBody):
        self.dag, self.run, self.plan = dag, dag.run, dag.plan
        self.blocked: dict[str, str] = {}

    def take_up(self, task: str, node: Node) -> None:
        """After a restart: the call or the fan behind a node that is there."""
        if node["phase"] in FULFILLED:
            return
        resolved = self._resolve(task)
        if resolved is None:
            return
        if node["type"] == FAN:
            self._fan_out(task, expand(resolved, self.run.globals))
        else:
            self._call(task, self.dag.name_of(task), resolved)

    def begin(self, task: str) -> None:
        needs = self.plan.needs[task]
        found = {name: self.dag.task_node(name) for name in needs.names}
        if not all(node is not None and self._over(node) for node in found.values()):
            return
        if needs.logic:
            words = {name: results(node, self.dag.items_of) for name, node in found.items() if node is not None}
            try:
                if not holds(needs.logic, words):
                    self._without_running(task, "Omitted", "omitted: depends condition not met")
                    return
            except DependsError as error:
                self._without_running(task, "Error", str(error))
                return
        resolved = self._resolve(task)
        if resolved is None:
            return
        if not loops(resolved):
            self._call(task, self.dag.name_of(task), resolved)
            return
        try:
            items = expand(resolved, self.run.globals)
        except (LoopError, SubstitutionError) as error:
            self._without_running(task, "Error", str(error))
            return
        if not items:
            self._without_running(task, "Skipped", "Skipped, empty params")
            return
        self._hang(task, self._new(self.dag.name_of(task), FAN, "Running", task))
        self._fan_out(task, items)

    def _over(self, node: Node) -> bool:
        """Whether what depends on a task's node may be looked at: it and its hooks have ended, and no stop ended it."""
        hooks_over = all(fulfilled(one) for one in self.run.state.children(node) if hooked(one))
        return fulfilled(node) and hooks_over and not self.run.interruptions.cut_off(node)

    def _resolve(self, task: str) -> JSON | None:
        """The task with what it refers to filled in; None where that cannot be (the task then says why)."""
        written, scope = self.plan.tasks[task], self.dag.scopes.of_task(task)
        try:
            bare = {key: one for key, one in written.items() if key not in ("depends", "hooks")}
            if certainly_false(bare, scope):
                return {**bare, "when": substitute(bare["when"], scope, REFERENCES)}
            resolved = with_artifacts(substitute(bare, scope, REFERENCES), scope)
        except MissingVariable as error:
            self._block(task, str(error))
            return None
        except (SubstitutionError, ScopeError, ExpressionError) as error:
            self._without_running(task, "Error", str(error))
            return None
        self.blocked.pop(task, None)
        return resolved

    def _block(self, task: str, message: str) -> None:
        if self.blocked.get(task) != message:
            self.blocked[task] = message
            self.run.state.say("waiting", self.dag.name_of(task), f"{message}; nothing that has ended gives it")

    def _without_running(self, task: str, phase: str, message: str) -> None:
        node = self.dag.task_node(task)
        if node is None:
            node = self._new(self.dag.name_of(task), SKIPPED, phase, task, message)
            self._hang(task, node)
        else:
            self.run.state.mark(node["name"], phase, message)
        self.dag.after(task)

    def _new(self, name: str, kind: str, phase: str, task: str, message: str = "") -> Node:
        return self.run.state.create(
            name, kind, phase, holder=self.plan.tasks[task], scope=self.dag.call.inner_source.scope,
            boundary=self.dag.id, message=message,
        )  # fmt: skip

    def _hang(self, task: str, node: Node, fan: Node | None = None) -> None:
        """Hang a node where it belongs: below its fan, below what it depends on, or below the DAG."""
        state, needs = self.run.state, self.plan.needs[task].names
        own = self.dag.node
        assert own is not None
        if fan is not None or not needs:
            state.add_child(fan or own, node)
            return
        for name in needs:
            before = self.dag.task_node(name)
            for id in outbound_nodes(before, state.nodes.get) if before is not None else ():
                state.add_child(state.nodes[id], node)

    def _fan_out(self, task: str, items: list[tuple[str, JSON]]) -> None:
        fan = self.dag.fans[task] = Fan(task, items)
        group = self.dag.task_node(task)
        for name, item in items:
            node = self.run.state.node(self.dag.name_of(name))
            if node is not None and group is not None and node["phase"] in FULFILLED:
                fan.open.discard(name)
                continue
            self._call(task, self.dag.name_of(name), item, fan=fan)
        if not fan.open:
            self.dag.fan_done(fan)

    def _call(self, task: str, name: str, resolved: JSON, fan: Fan | None = None) -> None:
        """Run the task, or one item of it, unless its `when` says no."""
        own_fan = self.dag.task_node(task) if fan is not None else None
        if self.run.state.node(name) is None:
            try:
                proceed = decide(resolved.get("when") or "")
                phase, message = "Skipped", f"when '{resolved.get('when')}' evaluated false"
            except ExpressionError as error:
                proceed, phase, message = False, "Error", str(error)
            if not proceed:
                node = self._new(name, SKIPPED, phase, task, message)
                self._hang(task, node, own_fan)
                self.dag.ended(task, resolved["name"], fan)
                return
        call = Call(
            self.run, self.dag, name, resolved, self.dag.call.inner_source, resolved.get("arguments") or {},
            boundary=self.dag, depth=self.dag.call.depth + 1, on_exit=self.dag.call.on_exit, family="tasks",
        )  # fmt: skip
        call.key = (task, fan)
        self.dag.calls[name if fan is not None else task] = call
        self.dag.open.add(name)
        self.dag.try_start(lambda: self._execute(call))

    def _execute(self, call: Call) -> None:
        task, fan = call.key
        try:
            call.execute()
        except TemplateError as error:
            self.dag.note(call, error)
        node = call.node
        if node is None:
            return
        self._hang(task, node, self.dag.task_node(task) if fan is not None else None)
        self.dag.child_changed(call)
