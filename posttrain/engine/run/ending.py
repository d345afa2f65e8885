"""The workflow's own hooks and exit handler, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.engine.expressions import ExpressionError, evaluate_bool, nested, with_functions
from posttrain.engine.expressions.dates import shown
from posttrain.engine.expressions.gotext import to_json
from posttrain.engine.nodes import BAD, FULFILLED, Node, fulfilled, pod_name
from posttrain.engine.run.calls import Call
from posttrain.engine.run.errors import LimitReached, TemplateError
from posttrain.engine.run.hooks import exit_hook, named_hooks
from posttrain.engine.run.opening import note_phase

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

_PHASES: dict[str, str] = {"Skipped": "Succeeded", "Omitted": "Succeeded"}


class Ending:
    """Looked at after every pass: what is due once the entry has changed, and the end when nothing is left."""

    def __init__(self, run: Controller):
        self.run, self.state = run, run.state
        self._hooks: dict[str, Call] = {}
        self._handler: Call | None = None

    def take_up(self) -> None:
        """After a restart: hooks and an exit handler that have begun go on."""
        if self.state.node(self._handler_name) is not None:
            self.run.agenda.soon(self._handler_over)
        for name in named_hooks({"hooks": self.run.spec.get("hooks")}):
            if self.state.node(self._hook_name(name)) is not None:
                self.run.agenda.soon(self._hooks_over)

    def look(self, root: Node) -> None:
        """Start what is due; end the workflow when the entry, its hooks and the exit handler are over."""
        run = self.run
        phase: str = root["phase"]
        run.globals["workflow.status"] = _PHASES.get(phase, phase)
        began = self.state.started.get("", self.state.clock())
        run.globals["workflow.duration"] = f"{self.state.clock() - began:f}"
        over = phase in FULFILLED or fulfilled(root)
        if over:
            run.globals["workflow.failures"] = self._failures()
        if self._hooks_over() and over and self._handler_over() and not run.done:
            self._conclude(root)

    def _failures(self) -> str:
        failed = [
            {
                "displayName": node["displayName"], "message": node.get("message", ""),
                "templateName": node.get("templateName") or (node.get("templateRef") or {}).get("template", ""),
                "phase": node["phase"],
                "podName": pod_name(self.state.name, node["id"], node.get("templateName", "")),
                "finishedAt": node.get("finishedAt"),
            }
            for node in self.state.nodes.values() if node["phase"] in BAD
        ]  # fmt: skip
        return to_json(to_json(failed or None, sort_keys=False), escape_html=False)

    # -- hooks

    def _hook_name(self, name: str) -> str:
        return f"{self.state.name}.hooks.{name}"

    def _hooks_over(self) -> bool:
        """Start the workflow's hooks that are due; whether none is left to wait for."""
        run = self.run
        hooks = named_hooks({"hooks": run.spec.get("hooks")})
        if not hooks:
            return True
        root = run.root.node if run.root else None
        environment = with_functions(nested({**run.globals, **run.global_artifacts}))
        for name, hook in hooks.items():
            called = self._hook_name(name)
            if called in self._hooks or root is None:
                continue
            try:
                due = self.state.node(called) is not None or evaluate_bool(hook.get("expression") or "", environment)
            except ExpressionError as error:
                self.state.mark(root["name"], "Error", str(error))
                return True
            if due:
                call = Call(
                    run, self, called, hook, run.library.local, hook.get("arguments") or {}, boundary=None, depth=1,
                    hook=True,
                )  # fmt: skip
                self._hooks[called] = call
                self._execute_hook(call, root)
        nodes = [call.node for call in self._hooks.values()]
        return all(node is not None and fulfilled(node) for node in nodes)

    def _execute_hook(self, call: Call, root: Node) -> None:
        try:
            node = call.execute()
        except LimitReached:
            self._hooks.pop(call.name)
            return
        except TemplateError as error:
            self.state.mark(root["name"], "Error", str(error))
            return
        self.state.add_child(root, node)

    # -- exit handler

    @property
    def _handler_name(self) -> str:
        return f"{self.state.name}.onExit"

    def _handler_over(self) -> bool:
        """Start the exit handler; whether it is over (or there is none)."""
        run, name = self.run, self._handler_name
        hook = exit_hook(run.spec, run.spec.get("arguments") or {})
        if hook is None or (self.state.node(name) is None and not run.may_run_exit_handlers()):
            return True
        if self._handler is None:
            self._handler = Call(
                run, self, name, hook, run.library.local, hook.get("arguments") or {}, boundary=None, depth=1,
                on_exit=True, hook=True,
            )  # fmt: skip
            try:
                self._handler.execute()
            except LimitReached:
                self._handler = None
                return False
            except TemplateError as error:
                self._handler_error(error)
        node = self._handler.node
        return node is not None and fulfilled(node)

    def _handler_error(self, error: TemplateError) -> None:
        self.end("Error", f"error in exit template execution : {error}")

    # -- owner of the calls of hooks and exit handler

    def child_changed(self, call: Call) -> None:
        """The end of a pass looks at them anyway."""

    def child_failed(self, call: Call, error: TemplateError) -> None:
        if call is self._handler:
            self._handler_error(error)

    # -- the end

    def _conclude(self, root: Node) -> None:
        phase: str = root["phase"]
        phase = _PHASES.get(phase, phase)
        if phase == "Running":
            phase = "Succeeded"  # the entry was a daemon
        message = root.get("message", "")
        if root["phase"] in BAD and self.run.shutdown:
            message = f"Stopped with strategy '{self.run.shutdown}'"
        handler = self._handler.node if self._handler else None
        if phase == "Succeeded":
            message = ""
            if handler is not None and handler["phase"] in BAD:
                phase, message = handler["phase"], handler.get("message", "")
        self.end(phase, message)

    def end(self, phase: str, message: str) -> None:
        """The workflow has ended; what of it still runs is ended, too."""
        run = self.run
        if run.done:
            return
        run.done = True
        for boundary in list(run.daemons):
            run.end_daemons(boundary)
        for body in list(run.machine.bodies()):
            body.end("the workflow has ended")
        self.state.set_status(finishedAt=shown(self.state.clock()), message=message or None)
        self.state.set_status(phase=phase)
        note_phase(run, phase)
