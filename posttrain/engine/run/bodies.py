"""What a call does once it may: the bodies of templates, and the one that only waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions.dates import loose_duration
from posttrain.engine.nodes import FULFILLED, SUSPEND, Node
from posttrain.engine.run.errors import TemplateError

if TYPE_CHECKING:
    from posttrain.engine.run.calls import Call

JSON = dict[str, Any]
DEADLINE = "Step exceeded its deadline"


class Body:
    """One body under one node: the call's own, or an attempt's.

    `start` makes the node or takes it up, and may leave it ended. What happens later is told to the
    call by `body_changed`; `start` itself tells nothing.
    """

    def __init__(self, call: Call, name: str, template: JSON, flags: JSON | None):
        self.call, self.name, self.template, self.flags = call, name, template, flags
        self.run = call.run
        self.deadline: float | None = None

    @property
    def node(self) -> Node | None:
        return self.run.state.node(self.name)

    @property
    def id(self) -> str:
        return self.run.state.id_of(self.name)

    def start(self) -> None:
        raise NotImplementedError

    def create(self, kind: str, phase: str) -> Node:
        return self.call.create(self.name, kind, phase, self.template, flags=self.flags)

    def changed(self) -> None:
        self.call.body_changed(self)


class SuspendBody(Body):
    """Waits for its time, or for somebody to resume it. Its supplied outputs are set from outside."""

    def start(self) -> None:
        node = self.node
        if node is None:
            node = self.create(SUSPEND, "Pending")
            self._offer_choices(node)
            supplied = [
                one for one in (self.template.get("outputs") or {}).get("parameters") or []
                if (one.get("valueFrom") or {}).get("supplied") is not None
            ]  # fmt: skip
            if supplied:
                self.run.state.change(node, {"outputs": {"parameters": supplied}})
        if node["phase"] in FULFILLED:
            return
        if self.run.stopped(self.call):
            self.run.state.mark(self.name, "Failed", f"Stopped with strategy '{self.run.shutdown}'")
            return
        if self.run.interruptions.overdue() and not self.call.on_exit:
            self.run.state.mark(self.name, "Failed", DEADLINE)
            return
        self.run.suspended_bodies[node["id"]] = self
        until = self._until(node)
        if until is not None and self.run.state.clock() >= until:
            self._over()
            return
        self.run.state.mark(self.name, "Running")
        if until is not None:
            self.run.agenda.at(until, self._wake)

    def _offer_choices(self, node: Node) -> None:
        """An input whose value is a JSON parameter with an enum offers that enum, its first value by default."""
        from posttrain.engine.expressions.gotext import GoJSONError, read_json

        for parameter in (node.get("inputs") or {}).get("parameters") or []:
            try:
                offered = read_json(parameter.get("value") or "")
            except GoJSONError:
                continue
            if isinstance(offered, dict) and offered.get("enum"):
                parameter["enum"] = offered["enum"]
                parameter.setdefault("default", offered["enum"][0])

    def _until(self, node: Node) -> float | None:
        length = self.template["suspend"].get("duration")
        if not length:
            return None
        try:
            return self.run.state.start_of(node) + loose_duration(length)
        except ValueError as error:
            raise TemplateError(str(error)) from None

    def _over(self) -> None:
        """The time is over: outputs nobody supplied take their defaults."""
        node = self.node
        assert node is not None
        self.run.suspended_bodies.pop(node["id"], None)
        outputs = node.get("outputs")
        if outputs:
            self.run.state.change(node, {"outputs": with_defaults(outputs, node)})
        self.run.state.mark(self.name, "Succeeded")

    def _wake(self) -> None:
        node = self.node
        if node is None or node["phase"] in FULFILLED:
            return
        if self.run.suspended:
            self.run.interruptions.when_resumed(self._wake)
            return
        try:
            self._over()
        except TemplateError as error:
            self.call.body_failed(self, error)
            return
        self.changed()

    def end(self, phase: str, message: str = "") -> None:
        """Somebody resumed, stopped or failed the node."""
        self.run.suspended_bodies.pop(self.id, None)
        self.run.state.mark(self.name, phase, message or None)
        self.changed()


def with_defaults(outputs: JSON, node: Node) -> JSON:
    """Supplied outputs, with defaults for those that nobody set. Raises TemplateError where there is none."""
    inputs = {one["name"]: one for one in (node.get("inputs") or {}).get("parameters") or []}
    filled: list[JSON] = []
    for parameter in outputs.get("parameters") or []:
        source = parameter.get("valueFrom") or {}
        if parameter.get("value") is not None or source.get("supplied") is None:
            filled.append(parameter)
            continue
        value = source.get("default")
        if value is None:
            own = inputs.get(parameter["name"], {})
            value = own.get("value", own.get("default"))
        if value is None:
            raise TemplateError(
                f"raw output parameter '{parameter['name']}' has not been set and does not have a default value"
            )
        filled.append({**{key: one for key, one in parameter.items() if key != "valueFrom"}, "value": value})
    return {**outputs, "parameters": filled}
