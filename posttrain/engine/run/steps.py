"""Carrying out a steps template: groups one after the other, the steps of a group side by side."""

from __future__ import annotations

from typing import Any

from posttrain.engine.expressions import ExpressionError, decide
from posttrain.engine.graph.dag import continues_on
from posttrain.engine.graph.fanout import LoopError, expand, loops
from posttrain.engine.nodes import FULFILLED, SKIPPED, STEPS, Node, bad, fulfilled
from posttrain.engine.run.boundary import Boundary
from posttrain.engine.run.calls import FAILED_FAST, Call
from posttrain.engine.run.errors import DepthExceeded, ExitHookBroken, TemplateError, TimedOut
from posttrain.engine.run.hooks import Hooks, exit_hook, named_hooks
from posttrain.engine.run.stepgroups import StepsScope, group_node, take_up_daemons
from posttrain.engine.scope import ScopeError
from posttrain.engine.templates import MissingVariable, SubstitutionError

JSON = dict[str, Any]


class StepsBody(Boundary):
    family = "steps"

    def start(self) -> None:
        if self.node is None:
            self.create(STEPS, "Running")
        self.place = -1
        self.scopes = StepsScope(self)
        self.hooked = False
        self.calls: dict[str, Call] = {}
        self.steps: dict[str, JSON] = {}
        self.made = False
        if self.node is not None and self.node["phase"] not in FULFILLED:
            self.run.agenda.soon(self.next_group)

    @property
    def groups(self) -> list[list[JSON]]:
        return self.template["steps"]

    def group_name(self, place: int) -> str:
        return f"{self.name}[{place}]"

    @property
    def group(self) -> Node:
        node = self.run.state.node(self.group_name(self.place))
        assert node is not None
        return node

    # -- from group to group

    def next_group(self) -> None:
        """Go on behind the current group, over those that have succeeded before."""
        if self.over:
            return
        while True:
            self.place += 1
            if self.place >= len(self.groups):
                self._end()
                return
            node = group_node(self)
            if node["phase"] not in FULFILLED:
                break
            take_up_daemons(self, node)
            if bad(node):
                self._end_badly(node)
                return
            if not self._offer():
                return
        self._fill_group()

    def _fill_group(self) -> None:
        """Resolve the steps of the current group and start them."""
        self.made = False
        self.calls, self.steps = {}, {}
        group = self.group
        try:
            steps = [self.scopes.resolve(step) for step in self.groups[self.place]]
        except MissingVariable as error:
            self.run.state.say("waiting", group["name"], f"{error}; nothing that has ended gives it")
            self.open.add(group["name"])
            return
        except (SubstitutionError, ScopeError, ExpressionError) as error:
            self._group_error(f"failed to resolve references: {error}")
            return
        try:
            expanded = [one for step in steps for one in self._expanded(step)]
        except (LoopError, SubstitutionError) as error:
            self._group_error(str(error))
            return
        self.hooked = any(named_hooks(step) or exit_hook(step, {}) for step in self.groups[self.place])
        for step in expanded:
            if not self._start_step(step):
                return
        self.made = True
        self.run.agenda.soon_once(self, self.check_group)

    def _expanded(self, step: JSON) -> list[JSON]:
        if not loops(step):
            return [step]
        hooks = {"hooks": step["hooks"]} if step.get("hooks") else {}
        items = expand({key: one for key, one in step.items() if key != "hooks"}, self.run.globals)
        if not items:
            self._skip(step, "Skipped", "Skipped, empty params")
        return [{**item, **hooks} for _, item in items]

    def _skip(self, step: JSON, phase: str, message: str) -> None:
        name = f"{self.group_name(self.place)}.{step['name']}"
        node = self.run.state.node(name)
        if node is None:
            node = self.run.state.create(
                name, SKIPPED, phase, holder=step, scope=self.call.inner_source.scope, boundary=self.id, message=message
            )
        self.run.state.add_child(self.group, node)

    def _start_step(self, step: JSON) -> bool:
        """Start one step; False where that ended the group."""
        name = f"{self.group_name(self.place)}.{step['name']}"
        try:
            proceed = decide(step.get("when") or "")
        except ExpressionError as error:
            self._skip(step, "Error", str(error))
            self._group_error(str(error))
            return False
        if not proceed:
            self._skip(step, "Skipped", f"when '{step.get('when')}' evaluated false")
            return True
        call = Call(
            self.run, self, name, step, self.call.inner_source, step.get("arguments") or {}, boundary=self,
            depth=self.call.depth + 1, on_exit=self.call.on_exit,
        )  # fmt: skip
        self.calls[name] = call
        self.open.add(name)
        self.try_start(lambda: self._execute(call))
        return not self.over and self.group["phase"] not in FULFILLED

    def _execute(self, call: Call) -> None:
        try:
            call.execute()
        except DepthExceeded:
            pass  # the node says so itself
        except TemplateError as error:
            self._hang(call)
            self._child_stopped(call, error)
            return
        if call.node is not None:
            self._hang(call)
            self.child_changed(call)

    def _hang(self, call: Call) -> None:
        node = call.node
        if node is not None:
            self.steps[call.name] = call.holder
            self.run.state.add_child(self.group, node)

    # -- owner of the steps' calls

    def child_changed(self, call: Call) -> None:
        node = call.node
        if node is None or self.over:
            return
        if call.name not in self.calls:
            self._changed_later(node)
            return
        if fulfilled(node):
            self.open.discard(call.name)
            self.run.release_later()
        self.run.agenda.soon_once(self, self.check_group)

    def child_failed(self, call: Call, error: TemplateError) -> None:
        if not self.over and call.name in self.calls:
            self._child_stopped(call, error)

    def _child_stopped(self, call: Call, error: TemplateError) -> None:
        self.open.discard(call.name)
        if isinstance(error, TimedOut):
            self.run.state.mark(self.group["name"], "Failed", str(error))
            self._end_badly(self.group)
        else:
            self._group_error(f"step group deemed errored due to child {call.name} error: {error}")

    def hook_done(self, hooks: Hooks) -> None:
        self.run.agenda.soon_once(self, self.check_group)

    def _changed_later(self, node: Node) -> None:
        """A daemon of a group that has passed died: its group is Failed, and so are the steps."""
        if not bad(node):
            return
        for place in range(self.place):
            group = self.run.state.node(self.group_name(place))
            if group is not None and node["id"] in (group.get("children") or []):
                message = f"child '{node['id']}' failed"
                self.run.state.mark(group["name"], "Failed", message)
                self.run.abandon(self)
                self._end_badly(group)
                return

    def check_group(self) -> None:
        """The verdict on the current group, once all of its steps and their hooks are over."""
        if self.over or not self.made:
            return
        group = self.group
        if group["phase"] in FULFILLED:
            return
        if self.open and not self.hooked:
            return  # to look at all of them each time one has changed would take long where there are many
        children = [self.run.state.nodes[id] for id in group.get("children") or []]
        over = not self.limited
        for child in children:
            step = self.steps.get(child["name"])
            self.scopes.statuses[f"steps.{child['displayName']}.status"] = child["phase"]
            if step is not None and not self._hooks_settled(child["name"], step):
                over = False
            over = over and fulfilled(child)
        if not over or self.over:
            return
        if self.template.get("failFast"):
            self.check_fail_fast()
            if self.over:
                return
        for child in children:
            if bad(child) and not continues_on(self.steps.get(child["name"], {}), child["phase"]):
                self.run.state.mark(group["name"], "Failed", f"child '{child['id']}' failed")
                self._end_badly(group)
                return
        self.run.state.mark(group["name"], "Succeeded")
        if self._offer():
            self.next_group()

    def _hooks_settled(self, name: str, step: JSON) -> bool:
        if not named_hooks(step) and not exit_hook(step, {}):
            return True
        hooks = self.hooks.get(name)
        if hooks is None:
            hooks = self.hooks[name] = Hooks(self, name, f"steps.{step['name']}", step, self.scopes.now)
        try:
            return hooks.look()
        except ExitHookBroken:
            self.run.agenda.soon_once(self, self.check_group)
            return False
        except TemplateError as error:
            self._group_error(str(error))
            return False

    def _offer(self) -> bool:
        """Let later groups read what the steps of this one gave; False where that broke the template."""
        try:
            self.scopes.offer(self.groups[self.place], self.group_name(self.place), self.group)
        except SubstitutionError as error:
            self.broken(TemplateError(str(error)))
            return False
        return True

    # -- endings

    def _group_error(self, message: str) -> None:
        self.run.state.mark(self.group["name"], "Error", message)
        self.run.abandon(self)
        self._end_badly(self.group)

    def _end_badly(self, group: Node) -> None:
        self._outbound()
        self.finish("Failed", group.get("message", ""))

    def _outbound(self) -> None:
        last = self.run.state.node(self.group_name(min(self.place, len(self.groups) - 1)))
        if last is not None:
            self.outbound([self.run.state.nodes[id] for id in last.get("children") or []])

    def _end(self) -> None:
        self.place = len(self.groups) - 1
        self._outbound()
        node = self.node
        assert node is not None
        try:
            outputs = self.outputs(self.scopes.now())
        except (TemplateError, SubstitutionError) as error:
            self.broken(TemplateError(str(error)))
            return
        if outputs is not None:
            self.run.state.change(node, {"outputs": outputs})
            self.run.keep_global_outputs(outputs)
        self.finish("Succeeded")

    def check_fail_fast(self) -> None:
        state = self.run.state
        if self.over or not state.bad_children(self.id) or state.active_pods(self.id):
            return
        state.mark(self.group["name"], "Failed", FAILED_FAST)
        self._outbound()
        self.finish("Failed", FAILED_FAST)

    def shut_down(self) -> None:
        """The workflow is being stopped: what parallelism held back ends as it starts, and so may the group."""
        self.release()
        stuck = self.open == {self.group_name(self.place)}
        if stuck:
            self.open.clear()
            self.run.state.mark(self.group_name(self.place), "Failed", f"Stopped with strategy '{self.run.shutdown}'")
            self._end_badly(self.group)
            return
        self.check_group()
