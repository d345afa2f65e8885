"""The attempts of a call with a retry strategy, under its Retry node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.engine.expressions import ExpressionError
from posttrain.engine.graph import retry
from posttrain.engine.library import POD_KINDS, kind_of
from posttrain.engine.nodes import BAD, FULFILLED, SKIPPED, Node, fulfilled, hooked, pod_name
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.templates import SubstitutionError, substitute_parameters

if TYPE_CHECKING:
    from posttrain.engine.run.bodies import Body
    from posttrain.engine.run.calls import Call


class Attempts:
    """Starts one attempt after the other; `current` is the body of the last one that this engine has begun."""

    def __init__(self, call: Call):
        self.call, self.run, self.state = call, call.run, call.run.state
        self.current: Body | None = None

    def go_on(self) -> None:
        """Take up the attempt that was under way before a restart, or do what follows. Raises TemplateError."""
        nodes = self._nodes()
        if self.current is None and nodes and nodes[-1]["phase"] not in FULFILLED:
            self._begin(len(nodes) - 1, self._ended())
        self._next()

    def changed(self) -> None:
        """The node of the current attempt has changed."""
        node, body = self.call.node, self.current
        attempt = self.state.node(body.name) if body is not None else None
        if node is None or attempt is None or node["phase"] in FULFILLED:
            return
        if attempt["phase"] in FULFILLED:
            self.run.agenda.soon(self._again)
        elif fulfilled(attempt) and not node.get("daemoned"):
            self.state.change(node, {"phase": attempt["phase"], "daemoned": True})

    def _nodes(self) -> list[Node]:
        node = self.call.node
        assert node is not None
        return [one for one in self.state.children(node) if not hooked(one)]

    def _ended(self) -> list[retry.Attempt]:
        state = self.state
        return [
            retry.Attempt(one, state.start_of(one), state.finish_of(one))
            for one in self._nodes()
            if one["phase"] in FULFILLED
        ]

    def _next(self) -> None:
        """Start another attempt, wait for its time, or end the Retry node. Raises TemplateError."""
        call, state = self.call, self.state
        node = call.node
        if node is None or node["phase"] in FULFILLED:
            return
        nodes = self._nodes()
        if nodes and nodes[-1]["phase"] not in FULFILLED:
            return
        ended = self._ended()
        if not ended:
            self._begin(0, [])
            return
        try:
            shutdown, overdue = self.run.shutdown, self.run.interruptions.overdue()
            decision = retry.after(call.retry_strategy or {}, ended, state.clock(), shutdown=shutdown, overdue=overdue)
        except (retry.RetryError, ExpressionError) as error:
            call.release()
            state.mark(call.name, "Error", str(error))
            raise TemplateError(str(error)) from None
        match decision:
            case retry.Done(phase, message):
                state.change(node, {"outputs": ended[-1].node.get("outputs"), "daemoned": None})
                state.mark(call.name, phase, message if phase in BAD else None)
            case retry.Wait(until, message):
                state.mark(call.name, node["phase"], message)
                self.run.agenda.at(until, self._again, cut_short=True)
            case retry.Again(deadline):
                if node.get("message"):
                    state.mark(call.name, node["phase"], "")
                self._begin(len(nodes), ended, deadline)

    def _again(self) -> None:
        """The wait is over."""
        if self.run.suspended:
            self.run.interruptions.when_resumed(self._again)
            return
        try:
            self._next()
        except TemplateError as error:
            self.call.owner.child_failed(self.call, error)
            return
        node = self.call.node
        if node is not None:
            self.call.tell(node)

    def _begin(self, number: int, ended: list[retry.Attempt], deadline: float | None = None) -> None:
        call, node = self.call, self.call.node
        assert node is not None
        name = f"{call.name}({number})"
        self.state.add_child(node, self.state.id_of(name))
        local = {f"lastRetry.{key}": text for key, text in retry.variables(ended, missing_code="0").items()}
        local |= {"retries": str(number)}
        if kind_of(call.template) in POD_KINDS:
            local["pod.name"] = pod_name(self.state.name, self.state.id_of(name), call.template.get("name", ""))
        flags = {**(call.flags or {}), "retried": True}
        try:
            template = substitute_parameters(call.template, self.run.globals, local)
        except SubstitutionError as error:
            call.create(name, SKIPPED, "Error", call.template, flags=flags, message=str(error))
            raise TemplateError(str(error)) from None
        body = self.current = self.run.body_of(call, name, template, flags)
        body.deadline = deadline
        call.start_body(body)
        self.changed()
