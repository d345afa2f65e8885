"""Carrying out a DAG: tasks start as what they depend on ends, until its phase is settled.

Only tasks that something happened to are looked at: a task is put on the agenda when the last thing
it may wait for has changed, in the order of the plan.
"""

from __future__ import annotations

import heapq
from typing import Any

from posttrain.engine.expressions import ExpressionError, decide
from posttrain.engine.graph.dag import Plan, assess
from posttrain.engine.graph.depends import DependsError, holds, results
from posttrain.engine.graph.fanout import LoopError, expand, gather, loops
from posttrain.engine.nodes import BAD, DAG, FAN, FULFILLED, SKIPPED, Node, ended, fulfilled, hooked, retried
from posttrain.engine.run.boundary import Boundary, certainly_false, outbound_nodes, with_artifacts
from posttrain.engine.run.calls import FAILED_FAST, Call
from posttrain.engine.run.errors import DepthExceeded, TemplateError, TimedOut
from posttrain.engine.run.hooks import Hooks, exit_hook, named_hooks
from posttrain.engine.scope import Referred, ScopeError, TemplateScope
from posttrain.engine.templates import REFERENCES, MissingVariable, SubstitutionError, substitute

JSON = dict[str, Any]


class Fan:
    """A fanned-out task: its items, in order, and how many of them are open."""

    def __init__(self, task: str, items: list[tuple[str, JSON]]):
        self.task, self.items = task, items
        self.open = {name for name, _ in items}


class DagBody(Boundary):
    family = "tasks"

    def start(self) -> None:
        if self.node is None:
            self.create(DAG, "Running")
        self.plan = Plan(self.template["dag"])
        self.agenda: list[tuple[int, str]] = []
        self.queued: set[str] = set()
        self.calls: dict[str, Call] = {}
        self.fans: dict[str, Fan] = {}
        self.blocked: dict[str, str] = {}
        self.settled: set[str] = set()  # tasks of which nothing more is waited for, hooks included
        if self.node is not None and self.node["phase"] not in FULFILLED:
            for task in self.plan.order:
                self.put(task)
            self.run.soon(self.advance)

    # -- names and scopes

    def name_of(self, task: str) -> str:
        return f"{self.name}.{task}"

    def task_node(self, task: str) -> Node | None:
        return self.run.state.node(self.name_of(task))

    def items_of(self, node: Node) -> list[Node]:
        found = [self.run.state.nodes.get(id) for id in node.get("children") or []]
        return [one for one in found if one is not None and not hooked(one)]

    def scope_of(self, task: str) -> TemplateScope:
        """What the arguments of a task may name: the outputs of all it depends on."""

        def find(name: str) -> Referred | None:
            if name not in self.plan.tasks or not self.plan.is_ancestor(name, task):
                return None
            return self._offered(name)

        return self.scope(find, lambda: self.plan.ancestors(task))

    def _offered(self, task: str) -> Referred | None:
        node = self.task_node(task)
        if node is None:
            return None
        offered = self.referred(node)
        if node["type"] == FAN:
            return Referred({**offered.variables, **gather(self.items_of(node))}, offered.artifacts)
        if node["phase"] in ("Skipped", "Omitted"):
            return Referred({**self._absent_outputs(task), **offered.variables}, offered.artifacts)
        return offered

    def _absent_outputs(self, task: str) -> dict[str, str]:
        """The declared outputs of a task that did not run read as nothing."""
        try:
            template, _ = self.run.library.resolve(self.plan.tasks[task], self.call.inner_source)
        except LookupError:
            return {}
        declared = (template.get("outputs") or {}).get("parameters") or []
        return {f"outputs.parameters.{one['name']}": "" for one in declared}

    # -- agenda

    def put(self, task: str) -> None:
        if task not in self.queued and task in self.plan.order:
            self.queued.add(task)
            heapq.heappush(self.agenda, (self.plan.order[task], task))

    def wake(self, task: str) -> None:
        self.put(task)
        self.run.soon_once(self, self.advance)

    def advance(self) -> None:
        """Look at every task on the agenda, then at the DAG itself."""
        while self.agenda and not self.over:
            _, task = heapq.heappop(self.agenda)
            self.queued.discard(task)
            self._look_at(task)
        if not self.over:
            self.assess()

    def _look_at(self, task: str) -> None:
        node = self.task_node(task)
        if node is None:
            self._begin(task)
        elif task not in self.settled:
            if not self._taken_up(task, node):
                self._take_up(task, node)
            self._after(task)

    def _taken_up(self, task: str, node: Node) -> bool:
        return task in self.calls or task in self.fans or node["type"] == SKIPPED

    def _take_up(self, task: str, node: Node) -> None:
        """After a restart: the call or the fan behind a node that is there."""
        if node["phase"] in FULFILLED and not (node["type"] == FAN and node["phase"] not in FULFILLED):
            return
        resolved = self._resolve(task)
        if resolved is None:
            return
        if node["type"] == FAN:
            self._fan_out(task, expand(resolved, self.run.globals))
        else:
            self._call(task, self.name_of(task), resolved)

    # -- one task

    def _begin(self, task: str) -> None:
        needs = self.plan.needs[task]
        found = {name: self.task_node(name) for name in needs.names}
        if any(node is None or not fulfilled(node) or not self._hooks_over(node) for node in found.values()):
            return
        if needs.logic:
            words = {name: results(node, self.items_of) for name, node in found.items() if node is not None}
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
            self._call(task, self.name_of(task), resolved)
            return
        try:
            items = expand(resolved, self.run.globals)
        except (LoopError, SubstitutionError) as error:
            self._without_running(task, "Error", str(error))
            return
        if not items:
            self._without_running(task, "Skipped", "Skipped, empty params")
            return
        self._hang(task, self._new(self.name_of(task), FAN, "Running", task))
        self._fan_out(task, items)

    def _hooks_over(self, node: Node) -> bool:
        children = [self.run.state.nodes.get(id) for id in node.get("children") or []]
        return all(fulfilled(one) for one in children if one is not None and hooked(one))

    def _resolve(self, task: str) -> JSON | None:
        """The task with what it refers to filled in; None where that cannot be (the task then says why)."""
        written, scope = self.plan.tasks[task], self.scope_of(task)
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
            self.run.state.say("waiting", self.name_of(task), f"{message}; nothing that has ended gives it")

    def _without_running(self, task: str, phase: str, message: str) -> None:
        node = self.task_node(task)
        if node is None:
            node = self._new(self.name_of(task), SKIPPED, phase, task, message)
            self._hang(task, node)
        else:
            self.run.state.mark(node["name"], phase, message)
        self._after(task)

    def _new(self, name: str, kind: str, phase: str, task: str, message: str = "") -> Node:
        return self.run.state.create(
            name, kind, phase, holder=self.plan.tasks[task], scope=self.call.inner_source.scope, boundary=self.id,
            message=message,
        )  # fmt: skip

    def _hang(self, task: str, node: Node, fan: Node | None = None) -> None:
        """Hang a node where it belongs: below its fan, below what it depends on, or below the DAG."""
        state, needs = self.run.state, self.plan.needs[task].names
        own = self.node
        assert own is not None
        if fan is not None or not needs:
            state.add_child(fan or own, node)
            return
        for name in needs:
            before = self.task_node(name)
            for id in outbound_nodes(before, state.nodes.get) if before is not None else ():
                state.add_child(state.nodes[id], node)

    def _fan_out(self, task: str, items: list[tuple[str, JSON]]) -> None:
        fan = self.fans[task] = Fan(task, items)
        group = self.task_node(task)
        for name, item in items:
            node = self.run.state.node(self.name_of(name))
            if node is not None and group is not None and node["phase"] in FULFILLED:
                fan.open.discard(name)
                continue
            self._call(task, self.name_of(name), item, fan=fan)
        if not fan.open:
            self._fan_done(fan)

    def _call(self, task: str, name: str, resolved: JSON, fan: Fan | None = None) -> None:
        """Run the task, or one item of it, unless its `when` says no."""
        own_fan = self.task_node(task) if fan is not None else None
        if self.run.state.node(name) is None:
            try:
                proceed = decide(resolved.get("when") or "")
                phase, message = "Skipped", f"when '{resolved.get('when')}' evaluated false"
            except ExpressionError as error:
                proceed, phase, message = False, "Error", str(error)
            if not proceed:
                node = self._new(name, SKIPPED, phase, task, message)
                self._hang(task, node, own_fan)
                self._ended(task, resolved["name"], fan)
                return
        call = Call(
            self.run, self, name, resolved, self.call.inner_source, resolved.get("arguments") or {}, boundary=self,
            depth=self.call.depth + 1, on_exit=self.call.on_exit, family="tasks",
        )  # fmt: skip
        call.key = (task, fan)
        self.calls[name if fan is not None else task] = call
        self.open.add(name)
        self.try_start(lambda: self._execute(call))

    def _execute(self, call: Call) -> None:
        task, fan = call.key
        try:
            call.execute()
        except TemplateError as error:
            self._note(call, error)
        node = call.node
        if node is None:
            return
        self._hang(task, node, self.task_node(task) if fan is not None else None)
        self.child_changed(call)

    # -- owner of the tasks' calls

    def child_changed(self, call: Call) -> None:
        task, fan = call.key
        node = call.node
        if node is None:
            return
        if fulfilled(node):
            self.open.discard(call.name)
            self.run.release_later(self)
            self._ended(task, call.holder["name"], fan)
        elif named_hooks(self.plan.tasks[task]):
            self.wake(task)

    def child_failed(self, call: Call, error: TemplateError) -> None:
        self._note(call, error)
        self.child_changed(call)

    def _note(self, call: Call, error: TemplateError) -> None:
        if not isinstance(error, (DepthExceeded, TimedOut)):  # those say it at the node themselves
            self.run.state.mark(call.name, "Error", f"task '{call.name}' errored: {error}")

    def hook_done(self, hooks: Hooks) -> None:
        self.wake(hooks.key.removeprefix("tasks."))

    def _ended(self, task: str, item: str, fan: Fan | None) -> None:
        if fan is None:
            self.wake(task)
            return
        if exit_hook(self.plan.tasks[task], {}) and not self._hooks_settled(self.name_of(item), task):
            return
        fan.open.discard(item)
        if not fan.open:
            self._fan_done(fan)

    def _fan_done(self, fan: Fan) -> None:
        nodes = [self.run.state.node(self.name_of(name)) for name, _ in fan.items]
        bad = [node["phase"] for node in nodes if node is not None and node["phase"] in BAD]
        self.run.state.mark(self.name_of(fan.task), bad[-1] if bad else "Succeeded")
        self.wake(fan.task)

    def _hooks_settled(self, name: str, task: str) -> bool:
        """Let the hooks of a node do what is due; whether nothing of them is left to wait for."""
        written = self.plan.tasks[task]
        if not named_hooks(written) and not exit_hook(written, {}):
            return True
        hooks = self.hooks.get(name)
        if hooks is None:
            hooks = self.hooks[name] = Hooks(self, name, f"tasks.{task}", written, lambda: self.scope_of(task))
        try:
            return hooks.look()
        except TemplateError as error:
            self.run.state.mark(name, "Error", str(error))
            return True

    def _after(self, task: str) -> None:
        """Hooks first; once they and the task are over, those that depend on it."""
        node = self.task_node(task)
        if node is None:
            return
        fan = self.fans.get(task)
        if fan is not None and fan.open and exit_hook(self.plan.tasks[task], {}):
            for name in [one for one in fan.open if self._item_over(one)]:
                self._ended(task, name, fan)
        over = self._hooks_settled(node["name"], task)
        if not fulfilled(node):
            return
        if not over:
            return
        if node["phase"] in FULFILLED:
            self.settled.add(task)
        for dependent in self.plan.dependents.get(task, ()):
            self.put(dependent)
        self.run.soon_once(self, self.advance)

    def _item_over(self, item: str) -> bool:
        node = self.run.state.node(self.name_of(item))
        return node is not None and ended(node)

    # -- the DAG itself

    def assess(self) -> None:
        """Settle the phase, once nothing in the DAG is open."""
        node = self.node
        if self.over or node is None or self.agenda:
            return
        if self.open or self.limited:
            return
        targets = [(self.run.state.id_of(self.name_of(one)), self.plan.tasks[one]) for one in self.plan.targets]
        fail_fast = self.template["dag"].get("failFast") is not False
        phase = "Failed" if self.run.shutdown else assess(node, targets, self.run.state.nodes.get, fail_fast=fail_fast)
        if phase == "Running":
            return
        self.outbound([one for one in (self.task_node(name) for name in self.plan.targets) if one is not None])
        if phase == "Succeeded":
            try:
                self._keep_outputs(node)
            except TemplateError as error:
                self.broken(error)
                return
        self.finish(phase)

    def _keep_outputs(self, node: Node) -> None:
        scope = self.scope(self._offered_for_outputs, lambda: list(self.plan.tasks))
        for task in self.plan.tasks:
            own = self.task_node(task)
            if own is not None and own.get("outputs"):
                self.run.keep_global_outputs(own["outputs"])
        try:
            outputs = self.outputs(scope)
        except SubstitutionError as error:
            raise TemplateError(str(error)) from None
        if outputs is not None:
            self.run.state.change(node, {"outputs": outputs})
            self.run.keep_global_outputs(outputs)

    def _offered_for_outputs(self, task: str) -> Referred | None:
        node = self.task_node(task)
        if node is None:
            return None
        offered = self.referred(node)
        if node["type"] == FAN:
            items = [one for one in self.items_of(node) if not retried(one)]
            return Referred({**gather(items), **offered.variables}, offered.artifacts)
        return offered

    def check_fail_fast(self) -> None:
        state = self.run.state
        if not self.over and state.bad_children(self.id) and not state.active_pods(self.id):
            self.finish("Failed", FAILED_FAST)

    def shut_down(self) -> None:
        """The workflow is being stopped: what has not started never will."""
        self.limited.clear()
        self.run.soon_once(self, self.advance)
