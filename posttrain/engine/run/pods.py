"""The body that is a pod: launched when the machine has room, followed until it has ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from posttrain.engine.nodes import FULFILLED, POD, Node, task_name
from posttrain.engine.podspec import PodStatus
from posttrain.engine.run.bodies import DEADLINE, Body
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.run.interruptions import cut_off_by
from posttrain.engine.run.launch import pod_spec
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.engine.run.calls import Call

JSON = dict[str, Any]
_UNSEEN = (DEADLINE, cut_off_by("Terminate"))  # these pods Argo deletes, and sees no exit code


class PodBody(Body):
    """`why` says with which message the engine ends the pod, "" while it does not."""

    def __init__(self, call: Call, name: str, template: JSON, flags: JSON | None):
        super().__init__(call, name, template, flags)
        self.why = ""
        self.launched = False

    @property
    def daemon(self) -> bool:
        return bool(self.template.get("daemon"))

    def start(self) -> None:
        node = self.node
        if node is None:
            node = self.create(POD, "Pending")
        if node["phase"] in FULFILLED:
            return
        why = self._why_not()
        known = (self.run.store.pods / node["id"] / "pod.json").exists()  # an engine before this one started it
        if why and not known:
            self.run.state.mark(self.name, "Failed", _of_no_pod(why))
            return
        try:
            boundary = self.call.boundary
            capture = boundary is not None and task_name(self.name) in boundary.captured
            self.spec = pod_spec(
                self.run, node, self.template, capture=capture, deadline=self.deadline, on_exit=self.call.on_exit
            )
        except UserError as error:
            raise TemplateError(str(error)) from None
        self.run.machine.launch(self)
        if why:
            self.why = why
            self.run.machine.stop(self)

    def _why_not(self) -> str:
        """Why the pod may not run, or not any longer."""
        if self.run.stopped(self.call):
            return cut_off_by(self.run.shutdown)
        return DEADLINE if self.run.interruptions.overdue() and not self.call.on_exit else ""

    def status_changed(self, status: PodStatus) -> None:
        """What the pod's supervisor says now."""
        node = self.node
        if node is None:
            return
        if node["phase"] in FULFILLED:
            return
        if status.ended:
            self._ended(node, status)
        elif status.phase == "Running" and not (self.daemon and not status.ready):
            changes: JSON = {"phase": "Running", "message": None, "hostNodeName": os.uname().nodename}
            if self.daemon:
                changes |= {"daemoned": True, "podIP": self.spec.ip}
                self.run.daemon_is_up(self)
            before = (node["phase"], node.get("daemoned"))
            self.run.state.change(node, changes)
            if before != (node["phase"], node.get("daemoned")):
                self.changed()

    def _ended(self, node: Node, status: PodStatus) -> None:
        phase, message = status.phase, status.message
        self.run.daemons.get(self.call.boundary_id, set()).discard(self)
        if self.why and phase != "Succeeded":
            phase, message = "Failed", self.why
        outputs = self._outputs(status.outputs)
        if self.why in _UNSEEN:
            outputs.pop("exitCode", None)
        host = os.uname().nodename if status.started else None
        self.run.state.change(node, {"daemoned": None, "outputs": outputs or None, "hostNodeName": host})
        if outputs:
            self.run.keep_global_outputs(outputs)
        self.run.state.mark(self.name, phase, message)
        self.changed()

    def _outputs(self, reported: JSON) -> JSON:
        """What the pod reports, with what the template says of each output."""
        declared = self.template.get("outputs") or {}
        outputs = dict(reported)
        for side in ("parameters", "artifacts"):
            known = {one["name"]: one for one in declared.get(side) or []}
            if reported.get(side):
                kept = ("valueFrom", "globalName", "description") if side == "parameters" else ("globalName",)
                outputs[side] = [
                    {**{key: known[one["name"]][key] for key in kept if key in known.get(one["name"], {})}, **one}
                    for one in reported[side]
                ]
        return outputs

    def end(self, why: str) -> None:
        """End the pod; its node will be Failed with `why` as its message."""
        self.why = self.why or why
        if not self.launched:
            self.run.machine.withdraw(self)
            self.run.state.mark(self.name, "Failed", _of_no_pod(why))
            self.changed()
            return
        self.run.machine.stop(self)


def _of_no_pod(why: str) -> str:
    """The controller's words for a node that never had a pod."""
    return why.replace("strategy:  ", "strategy: ")
