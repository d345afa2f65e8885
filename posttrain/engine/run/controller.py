"""The loop: what has happened is told to the executions, what they decide is stored and then carried out.

A pass goes on until nothing more follows from what is known; then the changes are journalled, and only
then pods are started or ended. The loop sleeps until a pod changes, a time comes or an order arrives.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posttrain.engine.expressions import ExpressionError, evaluate_bool, nested, with_functions
from posttrain.engine.expressions.gotext import to_json
from posttrain.engine.library import Library, TemplateNotFound, executed_spec, kind_of
from posttrain.engine.manifest.objects import Objects
from posttrain.engine.nodes import ACTIVE, BAD, FULFILLED, Node, fulfilled, pod_name
from posttrain.engine.run.bodies import Body, SuspendBody
from posttrain.engine.run.boundary import Boundary
from posttrain.engine.run.calls import Call
from posttrain.engine.run.dag import DagBody
from posttrain.engine.run.errors import LimitReached, TemplateError
from posttrain.engine.run.globals import GlobalsError, computed_labels, workflow_variables
from posttrain.engine.run.hooks import exit_hook, named_hooks
from posttrain.engine.run.launch import volumes_of
from posttrain.engine.run.machine import Machine
from posttrain.engine.run.pods import DEADLINE, PodBody
from posttrain.engine.run.state import RunState
from posttrain.engine.run.steps import StepsBody
from posttrain.engine.settings import EngineSettings
from posttrain.engine.store import RunStore
from posttrain.engine.sync import Locks, SyncError
from posttrain.engine.templates import FlatScope, SubstitutionError, substitute

JSON = dict[str, Any]
OnEvent = Callable[[JSON], None]
BODIES: dict[str, type[Body]] = {
    "container": PodBody, "script": PodBody, "suspend": SuspendBody, "dag": DagBody, "steps": StepsBody,
}  # fmt: skip
_LOCK_SECONDS = 0.3
_PHASES: dict[str, str] = {"Skipped": "Succeeded", "Omitted": "Succeeded"}


class Controller:
    """Drives one run until it has ended. The store's lock must be held and its journal open."""

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
        self.queue: deque[Callable[[], object]] = deque()
        self._queued: set[int] = set()
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.limited: dict[str, Boundary] = {}
        self.boundaries: dict[str, Boundary] = {}
        self.suspended_bodies: dict[str, SuspendBody] = {}
        self.lock_waiters: dict[str, Call] = {}
        self.daemons: dict[str, set[PodBody]] = {}
        self._resumed: list[Callable[[], None]] = []
        self.hook_calls: dict[str, Call] = {}
        self.root: Call | None = None
        self.exit_call: Call | None = None
        self.done = False
        self.first_pass = not state.status.get("phase")
        self.locks = Locks(workspace, state.name, settings.namespace, objects.config_value)
        self.machine = Machine(self, store.pods, settings)

    # -- what executions ask for

    def soon(self, what: Callable[[], object]) -> None:
        """Do it in this pass, after what is queued already."""
        self.queue.append(what)

    def soon_once(self, key: object, what: Callable[[], None]) -> None:
        """Like `soon`, but only once however often it is asked for."""
        if id(key) not in self._queued:
            self._queued.add(id(key))

            def do() -> None:
                self._queued.discard(id(key))
                what()

            self.queue.append(do)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Do it when the time has come."""
        heapq.heappush(self.timers, (moment, next(self._numbers), what))

    def when_resumed(self, what: Callable[[], None]) -> None:
        self._resumed.append(what)

    def body_of(self, call: Call, name: str, template: JSON, flags: JSON | None) -> Body:
        """The body that a template asks for. Raises TemplateError for a kind that cannot be carried."""
        kind = kind_of(template)
        if kind not in BODIES:
            raise call.fail(f"Template '{template.get('name', '')}' missing specification")
        body = BODIES[kind](call, name, template, flags)
        if isinstance(body, Boundary):
            self.boundaries[name] = body
        return body

    def launch(self, body: PodBody) -> None:
        self.machine.launch(body)

    def withdraw(self, body: PodBody) -> None:
        self.machine.withdraw(body)

    def stop_pod(self, body: PodBody) -> None:
        self.machine.stop(body)

    def wait_for_lock(self, call: Call) -> None:
        if not self.lock_waiters:
            self.at(self.state.clock() + _LOCK_SECONDS, self._try_locks)
        self.lock_waiters[call.name] = call

    def release_later(self, boundary: Boundary) -> None:
        """Something ended: what parallelism held back may start."""
        if self.limited:
            self.soon_once(self.limited, self._release_limited)

    def volumes(self) -> list[JSON]:
        return volumes_of(self.spec, self.state.name, self.globals)

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

    def end_daemons(self, boundary: str) -> None:
        """The scope of daemons is over: they are ended and count as Succeeded."""
        for body in self.daemons.pop(boundary, set()):
            for name in dict.fromkeys([body.name, body.call.name]):
                node = self.state.node(name)
                if node is not None and node.get("daemoned"):
                    self.state.change(node, {"daemoned": None})
                    self.state.mark(name, "Succeeded", "")
            self.machine.stop(body)

    def daemon_is_up(self, body: PodBody) -> None:
        self.daemons.setdefault(body.call.boundary_id, set()).add(body)

    def abandon(self, boundary: Boundary) -> None:
        """A template has ended while children of it still run: end them."""
        inside = boundary.name
        for body in list(self.machine.bodies()):
            if body.name.startswith(inside) and body.name != inside and not body.call.on_exit:
                body.end("the template it was part of has ended")
        for suspended in list(self.suspended_bodies.values()):
            if suspended.name.startswith(inside) and suspended.name != inside:
                suspended.end("Failed", "the template it was part of has ended")

    @property
    def shutdown(self) -> str:
        """Stop, Terminate, or nothing."""
        return self.spec.get("shutdown") or ""

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend")) and not self.shutdown

    def may_run_exit_handlers(self) -> bool:
        return self.shutdown != "Terminate"

    def deadline(self) -> float | None:
        """When the workflow has to be over."""
        limit = self.spec.get("activeDeadlineSeconds")
        began = self.state.started.get("")
        return None if limit is None or began is None else began + limit

    def overdue(self) -> str:
        end = self.deadline()
        return str(end) if end is not None and self.state.clock() > end else ""

    # -- the run from its beginning

    def drive(self, orders: Callable[[Controller], None]) -> None:
        """Until the run has ended. `orders` is called to take in what other processes ask for."""
        with self.machine:
            if self._begin():
                self._start_root()
            while True:
                orders(self)
                self._pass()
                self.commit()
                if self.done and self.machine.idle():
                    return
                self.machine.carry_out()
                self._sleep()

    def _begin(self) -> bool:
        """Everything before the first node; False where the workflow ends with it."""
        state = self.state
        try:
            self.spec = executed_spec(state.workflow["spec"], self.objects)
            self.globals = workflow_variables(state.workflow, self.spec, self.objects, self.settings.namespace)
        except (TemplateNotFound, LookupError) as error:
            return self._end_at_once("Error", str(error))
        except GlobalsError as error:
            return self._end_at_once("Failed", f"failed to set global parameters: {error}")
        for one in (state.status.get("outputs") or {}).get("parameters") or []:
            self.globals[f"workflow.outputs.parameters.{one['name']}"] = one.get("value", "")
        for one in (state.status.get("outputs") or {}).get("artifacts") or []:
            self.global_artifacts[f"workflow.outputs.artifacts.{one['name']}"] = one
        kept = {key: self.spec[key] for key in ("templates", "volumes") if key in self.spec}
        bare = {key: one for key, one in self.spec.items() if key not in kept}
        try:
            self.spec = substitute(bare, FlatScope(self.globals)) | kept
        except SubstitutionError as error:
            return self._end_at_once("Error", str(error))
        self._renew_arguments()
        if self.first_pass and not self._label():
            return False
        if not self._acquire_workflow_locks():
            return True
        self._mark_running()
        self.library = Library(state.name, self.spec, self.objects)
        end = self.deadline()
        if end is not None:
            self.at(end, self._deadline_passed)
        return True

    def _renew_arguments(self) -> None:
        """Arguments may hold tags themselves; what they stand for is what `workflow.parameters` gives."""
        for one in (self.spec.get("arguments") or {}).get("parameters") or []:
            if one.get("value") is not None:
                self.globals[f"workflow.parameters.{one['name']}"] = one["value"]

    def _label(self) -> bool:
        try:
            labels = computed_labels(self.spec, self.globals)
        except ExpressionError as error:
            return self._end_at_once("Error", str(error))
        self.globals |= {f"workflow.labels.{name}": text for name, text in labels.items()}
        own = (self.spec.get("workflowMetadata") or {}).get("annotations") or {}
        metadata = self.state.workflow["metadata"]
        self.state.set_part(
            "metadata", labels={**(metadata.get("labels") or {}), **labels},
            annotations={**(metadata.get("annotations") or {}), **own},
        )  # fmt: skip
        return True

    def _end_at_once(self, phase: str, message: str) -> bool:
        self._end(phase, message)
        return False

    def _acquire_workflow_locks(self) -> bool:
        wanted = self.spec.get("synchronization")
        if not wanted:
            return True
        try:
            waiting = self.locks.acquire(self.state.name, wanted)
        except SyncError as error:
            return self._end_at_once("Failed", f"Failed to acquire the synchronization lock. {error}")
        if waiting is None:
            return True
        if self.shutdown == "Terminate":
            return self._end_at_once("Failed", "Stopped with strategy 'Terminate'")
        self.state.set_status(phase=self.state.status.get("phase") or "Pending", message=waiting.message)
        self.at(self.state.clock() + _LOCK_SECONDS, self._try_workflow_locks)
        return False

    def _try_workflow_locks(self) -> None:
        if not self.done and self._acquire_workflow_locks():
            self._mark_running()
            self.library = Library(self.state.name, self.spec, self.objects)
            self._start_root()

    def _mark_running(self) -> None:
        from posttrain.engine.expressions.dates import read_shown, shown

        status = self.state.status
        if "" not in self.state.started:
            began = status.get("startedAt")
            self.state.started[""] = read_shown(began) if began else self.state.clock()
        changes: JSON = {
            "phase": "Running",
            "message": None,
            "startedAt": shown(self.state.started[""]),
            "finishedAt": None,
        }
        self.state.set_status(**changes)
        self._note_phase("Running")
        self.globals["workflow.status"] = "" if self.first_pass else "Running"

    def _note_phase(self, phase: str) -> None:
        labels = dict(self.state.workflow["metadata"].get("labels") or {})
        labels |= {
            "workflows.argoproj.io/phase": phase,
            "workflows.argoproj.io/completed": "true" if phase in FULFILLED else "false",
        }
        self.state.set_part("metadata", labels=labels)

    def _start_root(self) -> None:
        if self.done or not hasattr(self, "library"):
            return
        if self.suspended:
            self.when_resumed(self._start_root)
            return
        self.root = Call(
            self, self, self.state.name, {"template": self.spec.get("entrypoint", "")}, self.library.local,
            self.spec.get("arguments") or {}, boundary=None, depth=1,
        )  # fmt: skip
        self.soon(self._execute_root)
        if self.state.node(f"{self.state.name}.onExit") is not None:
            self.soon(self._exit_handler)
        for name in named_hooks({"hooks": self.spec.get("hooks")}):
            if self.state.node(f"{self.state.name}.hooks.{name}") is not None:
                self.soon(self._workflow_hooks)

    def _execute_root(self) -> None:
        assert self.root is not None
        try:
            self.root.execute()
        except LimitReached:
            self.when_resumed(self._execute_root)
        except TemplateError as error:
            self._entry_error(error)

    # -- owner of the entry and of the workflow's hooks

    def child_changed(self, call: Call) -> None:
        """The end of a pass looks at the entry and the handlers anyway."""

    def child_failed(self, call: Call, error: TemplateError) -> None:
        if call is self.root:
            self._entry_error(error)
        elif call is self.exit_call:
            self._end("Error", f"error in exit template execution : {error}")

    def hook_done(self, hooks: object) -> None:
        """Nothing: see `child_changed`."""

    def _entry_error(self, error: TemplateError) -> None:
        self._end("Error", f"error in entry template execution: {error}")

    # -- one pass

    def _pass(self) -> None:
        while True:
            self._due()
            while self.queue and not self.suspended:
                self.queue.popleft()()
            if not self._end_of_pass():
                break
        if self.first_pass and self.root is not None:
            self.first_pass = False
            self.globals["workflow.status"] = self.globals["workflow.status"] or "Running"

    def _due(self) -> None:
        now = self.state.clock()
        while self.timers and self.timers[0][0] <= now:
            heapq.heappop(self.timers)[2]()

    def _end_of_pass(self) -> bool:
        """Workflow hooks, the exit handler, the end. True where there is more to do in this pass."""
        if self.done or self.suspended or self.root is None:
            return bool(self.queue) and not self.suspended
        node = self.root.node
        if node is None:
            return False
        phase: str = node["phase"]
        self.globals["workflow.status"] = _PHASES.get(phase, phase)
        self.globals["workflow.duration"] = f"{self.state.clock() - self.state.started.get('', self.state.clock()):f}"
        over = node["phase"] in FULFILLED or fulfilled(node)
        if over:
            self.globals["workflow.failures"] = self._failures()
        if not self._workflow_hooks() or not over:
            return bool(self.queue)
        if not self._exit_handler():
            return bool(self.queue)
        if not self.done:
            self._conclude(node)
        return bool(self.queue)

    def _failures(self) -> str:
        failed = [
            {
                "displayName": node["displayName"], "message": node.get("message", ""),
                "templateName": node.get("templateName") or (node.get("templateRef") or {}).get("template", ""),
                "phase": node["phase"],
                "podName": pod_name(self.state.name, node["name"], node.get("templateName", "")),
                "finishedAt": node.get("finishedAt"),
            }
            for node in self.state.nodes.values() if node["phase"] in BAD
        ]  # fmt: skip
        return to_json(to_json(failed or None, sort_keys=False), escape_html=False)

    def _workflow_hooks(self) -> bool:
        """Start the workflow's hooks that are due; whether none is left to wait for."""
        hooks = named_hooks({"hooks": self.spec.get("hooks")})
        if not hooks:
            return True
        root = self.root.node if self.root else None
        environment = with_functions(nested({**self.globals, **self.global_artifacts}))
        for name, hook in hooks.items():
            called = f"{self.state.name}.hooks.{name}"
            if called in self.hook_calls or root is None:
                continue
            try:
                due = self.state.node(called) is not None or evaluate_bool(hook.get("expression") or "", environment)
            except ExpressionError as error:
                self.state.mark(root["name"], "Error", str(error))
                return True
            if due:
                call = Call(
                    self,
                    self,
                    called,
                    hook,
                    self.library.local,
                    hook.get("arguments") or {},
                    boundary=None,
                    depth=1,
                    hook=True,
                )
                self.hook_calls[called] = call
                self._execute_hook(call, root)
        nodes = [call.node for call in self.hook_calls.values()]
        return all(node is not None and fulfilled(node) for node in nodes)

    def _execute_hook(self, call: Call, root: Node) -> None:
        try:
            node = call.execute()
        except LimitReached:
            self.hook_calls.pop(call.name)
            return
        except TemplateError as error:
            self.state.mark(root["name"], "Error", str(error))
            return
        self.state.add_child(root, node)

    def _exit_handler(self) -> bool:
        """Start the exit handler; whether it is over (or there is none)."""
        hook = exit_hook(self.spec, self.spec.get("arguments") or {})
        name = f"{self.state.name}.onExit"
        if hook is None or (self.state.node(name) is None and not self.may_run_exit_handlers()):
            return True
        if self.exit_call is None:
            self.exit_call = Call(
                self, self, name, hook, self.library.local, hook.get("arguments") or {}, boundary=None, depth=1,
                on_exit=True, hook=True,
            )  # fmt: skip
            try:
                self.exit_call.execute()
            except LimitReached:
                self.exit_call = None
                return False
            except TemplateError as error:
                self._end("Error", f"error in exit template execution : {error}")
        node = self.exit_call.node if self.exit_call else None
        return node is not None and fulfilled(node)

    def _conclude(self, node: Node) -> None:
        phase: str = node["phase"]
        phase = _PHASES.get(phase, phase)
        if phase == "Running":
            phase = "Succeeded"  # the entry was a daemon
        message = node.get("message", "")
        if node["phase"] in BAD and self.shutdown:
            message = f"Stopped with strategy '{self.shutdown}'"
        exit_node = self.exit_call.node if self.exit_call else None
        if phase == "Succeeded":
            message = ""
            if exit_node is not None and exit_node["phase"] in BAD:
                phase, message = exit_node["phase"], exit_node.get("message", "")
        self._end(phase, message)

    def _end(self, phase: str, message: str) -> None:
        """The workflow has ended; what of it still runs is ended, too."""
        from posttrain.engine.expressions.dates import shown

        if self.done:
            return
        self.done = True
        for boundary in list(self.daemons):
            self.end_daemons(boundary)
        for body in list(self.machine.bodies()):
            body.end("the workflow has ended")
        now = self.state.clock()
        self.state.set_status(finishedAt=shown(now), message=message or None)
        self.state.set_status(phase=phase)
        self._note_phase(phase)

    def commit(self) -> None:
        """Store what has changed and tell whoever listens."""
        if self.done and self.machine.idle():
            self.locks.release_all()
        for event in self.store.commit(self.state, final=self.done and self.machine.idle()):
            if self.on_event is not None:
                self.on_event(event)

    def _sleep(self) -> None:
        if self.queue and not self.suspended:
            return
        timeout = 2.0
        if self.timers:
            timeout = min(timeout, max(0.0, self.timers[0][0] - self.state.clock()))
        self.machine.wait(timeout)

    # -- things that happen

    def _try_locks(self) -> None:
        waiters, self.lock_waiters = self.lock_waiters, {}
        for call in waiters.values():
            node = call.node
            if node is None or node["phase"] not in ACTIVE:
                continue
            self._retry_call(call)

    def _retry_call(self, call: Call) -> None:
        try:
            node = call.execute()
        except LimitReached:
            self.wait_for_lock(call)
            return
        except TemplateError as error:
            call.owner.child_failed(call, error)
            return
        if node["phase"] in FULFILLED:
            call.owner.child_changed(call)

    def _release_limited(self) -> None:
        for boundary in list(self.limited.values()):
            boundary.release()

    def _deadline_passed(self) -> None:
        for body in list(self.machine.bodies()):
            if not body.call.on_exit and not body.why and not (body.node or {}).get("daemoned"):
                body.end(DEADLINE)
        for suspended in list(self.suspended_bodies.values()):
            if not suspended.call.on_exit:
                suspended.end("Failed", DEADLINE)
        self._fail_waiting(DEADLINE)

    def _fail_waiting(self, message: str) -> None:
        """Nodes that wait for a lock get none any more."""
        waiters, self.lock_waiters = self.lock_waiters, {}
        for call in waiters.values():
            if call.on_exit and self.shutdown != "Terminate":
                self.lock_waiters[call.name] = call
                continue
            self.locks.release(self.state.id_of(call.name))
            self.state.mark(call.name, "Failed", message)
            call.owner.child_changed(call)

    def shut_down(self, strategy: str) -> None:
        """Stop or Terminate: what runs is ended, what has not started never will."""
        self.spec["shutdown"] = strategy
        self.state.set_part("spec", shutdown=strategy)
        spared = strategy == "Stop"
        for body in list(self.machine.bodies()):
            if not (spared and body.call.on_exit):
                body.end(f"workflow shutdown with strategy:  {strategy}")
        for suspended in list(self.suspended_bodies.values()):
            if not (spared and suspended.call.on_exit):
                suspended.end("Failed", f"Stopped with strategy '{strategy}'")
        self._fail_waiting(f"workflow shutdown with strategy: {strategy}")
        for boundary in list(self.boundaries.values()):
            if not boundary.over and not (spared and boundary.call.on_exit):
                boundary.shut_down()
        self._go_on()  # a suspended run ends, too
        for _, _, what in self.timers:
            if getattr(what, "__name__", "") == "_again":
                self.soon(what)

    def suspend(self) -> None:
        self.spec["suspend"] = True
        self.state.set_part("spec", suspend=True)

    def resume(self) -> None:
        """Go on after a suspension of the whole workflow."""
        if self.spec.pop("suspend", None):
            self.state.set_part("spec", suspend=None)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._resumed = self._resumed, []
        for what in waiting:
            self.soon(what)
