"""The loop: what has happened is told to the executions, what they decide is stored and then carried out.

A pass goes on until nothing more follows from what is known; then the changes are journalled, and only
then pods are started or ended. The loop sleeps until a pod changes, a time comes or an order arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from posttrain.engine.library import Library, kind_of
from posttrain.engine.manifest.objects import Objects
from posttrain.engine.nodes import within
from posttrain.engine.run.agenda import Agenda
from posttrain.engine.run.bodies import Body, SuspendBody
from posttrain.engine.run.boundary import Boundary
from posttrain.engine.run.calls import Call
from posttrain.engine.run.dag import DagBody
from posttrain.engine.run.ending import Ending
from posttrain.engine.run.errors import LimitReached, TemplateError
from posttrain.engine.run.interruptions import Interruptions
from posttrain.engine.run.machine import Machine
from posttrain.engine.run.opening import Opening
from posttrain.engine.run.pods import PodBody
from posttrain.engine.run.state import RunState
from posttrain.engine.run.steps import StepsBody
from posttrain.engine.settings import EngineSettings
from posttrain.engine.store import RunStore
from posttrain.engine.sync import Locks

JSON = dict[str, Any]
OnEvent = Callable[[JSON], None]
BODIES: dict[str, type[Body]] = {
    "container": PodBody, "script": PodBody, "suspend": SuspendBody, "dag": DagBody, "steps": StepsBody,
}  # fmt: skip


class Controller:
    """Drives one run until it has ended. The store's lock must be held and its journal open.

    `spec` is what is executed, `globals` the variables under `workflow.`; executions find the open templates
    in `boundaries`, those that parallelism holds back in `limited`, and the daemons of a template by its id.
    """

    library: Library

    def __init__(
        self, store: RunStore, state: RunState, objects: Objects, settings: EngineSettings, workspace: Path,
        on_event: OnEvent | None = None,
    ):  # fmt: skip
        self.store, self.state, self.objects, self.settings, self.workspace = store, state, objects, settings, workspace
        self.on_event = on_event
        self.artifacts = workspace / "engine" / ".artifacts"
        self.globals: dict[str, str] = {}
        self.global_artifacts: dict[str, JSON] = {}
        self.spec: JSON = {}
        self.limited: dict[str, Boundary] = {}
        self.boundaries: dict[str, Boundary] = {}
        self.suspended_bodies: dict[str, SuspendBody] = {}
        self.daemons: dict[str, set[PodBody]] = {}
        self.root: Call | None = None
        self.done = False
        self.first_pass = not state.status.get("phase")
        self.agenda = Agenda(state.clock)
        self.locks = Locks(workspace, state.name, settings.namespace, objects.config_value)
        self.machine = Machine(self, store.pods, settings)
        self.interruptions = Interruptions(self)
        self.ending = Ending(self)

    # -- the loop

    def drive(self, orders: Callable[[Controller], None]) -> None:
        """Until the run has ended. `orders` is called to take in what other processes ask for."""
        with self.machine:
            Opening(self).begin()
            while True:
                orders(self)
                self._pass()
                self.commit()
                if self.done and self.machine.idle():
                    return
                self.machine.carry_out()
                self._sleep()

    def _pass(self) -> None:
        while True:
            self.agenda.ring()
            while len(self.agenda) and not self.suspended:
                self.agenda.next()
            root = self.root.node if self.root is not None else None
            if root is not None and not self.done and not self.suspended:
                self.ending.look(root)
            if not len(self.agenda) or self.suspended:
                break
        if self.first_pass and self.root is not None:
            self.first_pass = False
            self.globals["workflow.status"] = self.globals["workflow.status"] or "Running"

    def commit(self) -> None:
        """Store what has changed and tell whoever listens."""
        if self.done and self.machine.idle():
            self.locks.release_all()
        for event in self.store.commit(self.state, final=self.done and self.machine.idle()):
            if self.on_event is not None:
                self.on_event(event)

    def _sleep(self) -> None:
        if len(self.agenda) and not self.suspended:
            return
        until = self.agenda.seconds_until_next()
        self.machine.wait(2.0 if until is None else min(2.0, until))

    # -- owner of the entry

    def start_root(self) -> None:
        """Call the entry, unless the workflow is suspended or has ended."""
        if self.done:
            return
        if self.suspended:
            self.interruptions.when_resumed(self.start_root)
            return
        self.root = Call(
            self, self, self.state.name, {"template": self.spec.get("entrypoint", "")}, self.library.local,
            self.spec.get("arguments") or {}, boundary=None, depth=1,
        )  # fmt: skip
        self.agenda.soon(self._execute_root)
        self.ending.take_up()

    def _execute_root(self) -> None:
        assert self.root is not None
        try:
            self.root.execute()
        except LimitReached:
            self.interruptions.when_resumed(self._execute_root)
        except TemplateError as error:
            self.child_failed(self.root, error)

    def child_changed(self, call: Call) -> None:
        """The end of a pass looks at the entry anyway."""

    def child_failed(self, call: Call, error: TemplateError) -> None:
        self.ending.end("Error", f"error in entry template execution: {error}")

    # -- what executions ask for

    def body_of(self, call: Call, name: str, template: JSON, flags: JSON | None) -> Body:
        """The body that a template asks for. Raises TemplateError for a kind that cannot be carried."""
        kind = kind_of(template)
        if kind not in BODIES:
            raise call.fail(f"Template '{template.get('name', '')}' missing specification")
        body = BODIES[kind](call, name, template, flags)
        if isinstance(body, Boundary):
            self.boundaries[name] = body
        return body

    @property
    def shutdown(self) -> str:
        """Stop, Terminate, or nothing."""
        return self.spec.get("shutdown") or ""

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend")) and not self.shutdown

    def may_run_exit_handlers(self) -> bool:
        return self.shutdown != "Terminate"

    def stopped(self, call: Call) -> bool:
        """Whether the workflow was told to end, and this call with it: a Stop spares exit handlers."""
        return bool(self.shutdown) and not (call.on_exit and self.may_run_exit_handlers())

    def release_later(self) -> None:
        """Something ended: what parallelism held back may start."""
        if self.limited:
            self.agenda.soon_once(self.limited, self._release_limited)

    def _release_limited(self) -> None:
        for boundary in list(self.limited.values()):
            boundary.release()

    def keep_global_outputs(self, outputs: JSON) -> None:
        """Outputs with a global name become the workflow's."""
        own: JSON = dict(self.state.status.get("outputs") or {})
        changed = False
        for side in ("parameters", "artifacts"):
            for one in outputs.get(side) or []:
                if not one.get("globalName") or (side == "parameters" and one.get("value") is None):
                    continue
                kept = {k: v for k, v in one.items() if k not in ("globalName", "path", "valueFrom")} | {
                    "name": one["globalName"]
                }
                others = [other for other in own.get(side) or [] if other["name"] != kept["name"]]
                own[side] = [*others, kept]
                changed = True
                if side == "parameters":
                    self.globals[f"workflow.outputs.parameters.{kept['name']}"] = kept["value"]
                else:
                    self.global_artifacts[f"workflow.outputs.artifacts.{kept['name']}"] = kept
        if changed:
            self.state.set_status(outputs=own)

    def daemon_is_up(self, body: PodBody) -> None:
        self.daemons.setdefault(body.call.boundary_id, set()).add(body)

    def end_daemons(self, boundary: str) -> None:
        """The scope of daemons is over: they are ended and count as Succeeded."""
        for body in self.daemons.pop(boundary, set()):
            for name in dict.fromkeys([body.name, body.call.name]):
                node = self.state.node(name)
                if node is not None and node.get("daemoned"):
                    self.state.change(node, {"daemoned": None})
                    self.state.mark(name, "Succeeded", "")
            self.machine.stop(body)

    def abandon(self, boundary: Boundary) -> None:
        """A template has ended while children of it still run: end them."""
        for body in list(self.machine.bodies()):
            if within(body.name, boundary.name) and not body.call.on_exit:
                body.end("the template it was part of has ended")
        for suspended in list(self.suspended_bodies.values()):
            if within(suspended.name, boundary.name):
                suspended.end("Failed", "the template it was part of has ended")
