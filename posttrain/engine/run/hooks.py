"""Hooks of a step or task: named ones that run when their expression comes true, and the one at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions import ExpressionError, evaluate_bool
from posttrain.engine.nodes import Node, ended, fulfilled
from posttrain.engine.run.calls import Call
from posttrain.engine.run.errors import ExitHookBroken, LimitReached, TemplateError
from posttrain.engine.scope import ScopeError, TemplateScope
from posttrain.engine.templates import SubstitutionError, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.boundary import Boundary

JSON = dict[str, Any]


def exit_hook(holder: JSON, workflow_arguments: JSON) -> JSON | None:
    """The hook at the end of a step, task or workflow."""
    if holder.get("onExit"):
        return {"template": holder["onExit"], "arguments": workflow_arguments}
    hook = (holder.get("hooks") or {}).get("exit")
    if hook is None:
        return None
    given = hook.get("arguments") or {}
    return hook if given.get("parameters") or given.get("artifacts") else {**hook, "arguments": workflow_arguments}


def named_hooks(holder: JSON) -> dict[str, JSON]:
    return {name: hook for name, hook in (holder.get("hooks") or {}).items() if name != "exit"}


class Hooks:
    """The hooks of one node. `key` is how the node is named in tags, `tasks.NAME` or `steps.NAME`.

    `scope` gives the scope of the moment. Once a hook has been started it stays; `done` says whether
    what has to end before others go on has ended.
    """

    def __init__(self, boundary: Boundary, name: str, key: str, holder: JSON, scope: Callable[[], TemplateScope]):
        self.boundary, self.name, self.key, self.scope = boundary, name, key, scope
        self.run = boundary.run
        self.named = named_hooks(holder)
        self.exit = exit_hook(holder, self.run.spec.get("arguments") or {})
        self.calls: dict[str, Call] = {}
        self._trouble: TemplateError | None = None

    def look(self) -> bool:
        """Start what is due; whether nothing is left to wait for.

        Raises TemplateError for what is no expression and, once, for a hook whose template cannot be started.
        """
        node = self.run.state.node(self.name)
        assert node is not None
        for name, hook in self.named.items():
            called = f"{self.name}.hooks.{name}"
            if called in self.calls or self.run.state.node(called) is not None or self._true(hook, node):
                self._start(called, hook, node, on_exit=False)
        if not self._all_fulfilled():
            return False
        if self.exit is not None and ended(node) and self.run.may_run_exit_handlers():
            called = f"{self.name}.onExit"
            due = called in self.calls or not self.exit.get("expression") or self._true(self.exit, node)
            if due:  # that of a step which a stop ended is not spared either
                self._start(called, self.exit, node, on_exit=not self.run.interruptions.cut_off(node))
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        return self._all_fulfilled()

    def _all_fulfilled(self) -> bool:
        nodes = [call.node for call in self.calls.values()]
        return all(node is not None and fulfilled(node) for node in nodes)

    def _true(self, hook: JSON, node: Node) -> bool:
        scope = self.scope()
        scope.extra[f"{self.key}.status"] = node["phase"]
        try:
            return evaluate_bool(hook.get("expression") or "", scope.environment())
        except ExpressionError as error:
            raise TemplateError(str(error)) from None

    def _start(self, called: str, hook: JSON, node: Node, *, on_exit: bool) -> None:
        call = self.calls.get(called)
        if call is None:
            source = self.boundary.call.inner_source
            call = self.calls[called] = Call(
                self.run, self, called, hook, source, self._arguments(hook, node), boundary=self.boundary,
                depth=self.boundary.call.depth + 1, on_exit=on_exit or self.boundary.call.on_exit, hook=True,
            )  # fmt: skip
            self.boundary.open.add(called)
            self.boundary.try_start(lambda: self._execute(call, node))

    def _execute(self, call: Call, node: Node) -> None:
        try:
            hook_node: Node | None = call.execute()
        except LimitReached:
            raise
        except TemplateError as error:
            hook_node = call.node
            self._trouble = ExitHookBroken(str(error)) if call.name == f"{self.name}.onExit" else error
        if hook_node is not None:
            self.run.state.add_child(node, hook_node)
            if fulfilled(hook_node):
                self.boundary.open.discard(call.name)

    def _arguments(self, hook: JSON, node: Node) -> JSON:
        arguments = hook.get("arguments") or {}
        outputs = self.boundary.referred(node)
        if not arguments:
            return arguments
        scope = self.scope()
        scope.extra[f"{self.key}.status"] = node["phase"]
        given = {name: text for name, text in outputs.variables.items() if name.startswith("outputs.")}
        scope.extra |= {f"{self.key}.{name}": text for name, text in given.items()}
        try:
            arguments = substitute(arguments, scope)
            resolved = [
                {**scope.resolve_artifact(one), "name": one["name"]}
                if one.get("from") or one.get("fromExpression")
                else one
                for one in arguments.get("artifacts") or []
            ]  # fmt: skip
        except (SubstitutionError, ScopeError) as error:
            raise TemplateError(str(error)) from None
        return {**arguments, "artifacts": resolved} if resolved else arguments

    # -- owner of the hooks' calls

    def child_changed(self, call: Call) -> None:
        node = call.node
        if node is not None and fulfilled(node):
            self.boundary.open.discard(call.name)
            self.boundary.hook_done(self)

    def child_failed(self, call: Call, error: TemplateError) -> None:
        self.child_changed(call)
