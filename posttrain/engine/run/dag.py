"""Carrying out a DAG: tasks start as what they depend on ends, until its phase is settled.

Only tasks that something happened to are looked at: a task is put on the agenda when the last thing
it may wait for has changed, in the order of the plan.
"""

from __future__ import annotations

import heapq
from typing import Any

from posttrain.engine.graph.dag import Plan, assess
from posttrain.engine.nodes import BAD, DAG, FULFILLED, SKIPPED, Node, ended, fulfilled, hooked
from posttrain.engine.run.boundary import Boundary
from posttrain.engine.run.calls import FAILED_FAST, Call
from posttrain.engine.run.dagscope import DagScope
from posttrain.engine.run.dagstart import Fan, TaskStart
from posttrain.engine.run.errors import DepthExceeded, TemplateError, TimedOut
from posttrain.engine.run.hooks import Hooks, exit_hook, named_hooks
from posttrain.engine.templates import SubstitutionError

JSON = dict[str, Any]


class DagBody(Boundary):
    family = "tasks"

    def start(self) -> None:
        if self.node is None:
            self.create(DAG, "Running")
        self.plan = Plan(self.template["dag"])
        for target in self.plan.targets:
            if target not in self.plan.tasks:
                raise TemplateError(f"target '{target}' is not defined")
        self.scopes, self._start = DagScope(self), TaskStart(self)
        self.agenda: list[tuple[int, str]] = []
        self.queued: set[str] = set()
        self.calls: dict[str, Call] = {}
        self.fans: dict[str, Fan] = {}
        self.settled: set[str] = set()  # tasks of which nothing more is waited for, hooks included
        if self.node is not None and self.node["phase"] not in FULFILLED:
            for task in self.plan.order:
                self.put(task)
            self.run.agenda.soon(self.advance)

    # -- names and scopes

    def name_of(self, task: str) -> str:
        return f"{self.name}.{task}"

    def task_node(self, task: str) -> Node | None:
        return self.run.state.node(self.name_of(task))

    def items_of(self, node: Node) -> list[Node]:
        return [one for one in self.run.state.children(node) if not hooked(one)]

    # -- agenda

    def put(self, task: str) -> None:
        if task not in self.queued and task in self.plan.order:
            self.queued.add(task)
            heapq.heappush(self.agenda, (self.plan.order[task], task))

    def wake(self, task: str) -> None:
        self.put(task)
        self.run.agenda.soon_once(self, self.advance)

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
            self._start.begin(task)
        elif task not in self.settled:
            if not self._taken_up(task, node):
                self._start.take_up(task, node)
            self.after(task)

    def _taken_up(self, task: str, node: Node) -> bool:
        return task in self.calls or task in self.fans or node["type"] == SKIPPED

    # -- owner of the tasks' calls

    def child_changed(self, call: Call) -> None:
        task, fan = call.key
        node = call.node
        if node is None:
            return
        if fulfilled(node):
            self.open.discard(call.name)
            self.run.release_later()
            self.ended(task, call.holder["name"], fan)
        elif named_hooks(self.plan.tasks[task]):
            self.wake(task)

    def child_failed(self, call: Call, error: TemplateError) -> None:
        self.note(call, error)
        self.child_changed(call)

    def note(self, call: Call, error: TemplateError) -> None:
        if not isinstance(error, (DepthExceeded, TimedOut)):  # those say it at the node themselves
            self.run.state.mark(call.name, "Error", f"task '{call.name}' errored: {error}")

    def hook_done(self, hooks: Hooks) -> None:
        self.wake(hooks.key.removeprefix("tasks."))

    def ended(self, task: str, item: str, fan: Fan | None) -> None:
        if fan is None:
            self.wake(task)
            return
        if exit_hook(self.plan.tasks[task], {}) and not self._hooks_settled(self.name_of(item), task):
            return
        fan.open.discard(item)
        if not fan.open:
            self.fan_done(fan)

    def fan_done(self, fan: Fan) -> None:
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
            hooks = self.hooks[name] = Hooks(self, name, f"tasks.{task}", written, lambda: self.scopes.of_task(task))
        try:
            return hooks.look()
        except TemplateError as error:
            if task in self.plan.targets:
                self.broken(error)
            else:
                self.run.state.mark(name, "Error", str(error))
            return True

    def after(self, task: str) -> None:
        """Hooks first; once they and the task are over, those that depend on it."""
        node = self.task_node(task)
        if node is None or self.run.interruptions.cut_off(node):
            return
        fan = self.fans.get(task)
        if fan is not None and fan.open and exit_hook(self.plan.tasks[task], {}):
            for name in [one for one in fan.open if self._item_over(one)]:
                self.ended(task, name, fan)
        over = self._hooks_settled(node["name"], task)
        if not fulfilled(node) or not over:
            return
        if node["phase"] in FULFILLED:
            self.settled.add(task)
        for dependent in self.plan.dependents.get(task, ()):
            self.put(dependent)
        self.run.agenda.soon_once(self, self.advance)

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
        if self.run.stopped(self.call):
            phase = "Failed"
        else:
            phase = assess(node, targets, self.run.state.nodes.get, fail_fast=fail_fast)
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
        scope = self.scopes.of_outputs()
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

    def check_fail_fast(self) -> None:
        state = self.run.state
        if not self.over and state.bad_children(self.id) and not state.active_pods(self.id):
            self.finish("Failed", FAILED_FAST)

    def shut_down(self) -> None:
        """The workflow is being stopped: what follows on nodes that have ended is looked at a last time."""
        self.release()
        self.advance()
