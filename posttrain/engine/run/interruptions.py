"""What keeps a workflow from going on: its deadline, a stop, a suspension, and locks that others hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from posttrain.engine.nodes import ACTIVE, BAD, DAG, FULFILLED, POD, STEPS, SUSPEND, Node
from posttrain.engine.run.bodies import DEADLINE
from posttrain.engine.run.errors import LimitReached, TemplateError
from posttrain.engine.run.opening import LOCK_SECONDS

if TYPE_CHECKING:
    from posttrain.engine.run.calls import Call
    from posttrain.engine.run.controller import Controller


def cut_off_by(strategy: str) -> str:
    """The message of a pod that a stop ended."""
    return f"workflow shutdown with strategy:  {strategy}"


class Interruptions:
    """`shut_down`, `suspend` and `resume` are what an operator may ask of a run."""

    def __init__(self, run: Controller):
        self.run, self.state = run, run.state
        self._held_back: list[Callable[[], None]] = []
        self._waiting_for_lock: dict[str, Call] = {}

    # -- deadline

    def deadline(self) -> float | None:
        """When the workflow has to be over."""
        limit = self.run.spec.get("activeDeadlineSeconds")
        began = self.state.started.get("")
        return None if limit is None or began is None else began + limit

    def overdue(self) -> str:
        """The deadline, once it has passed."""
        end = self.deadline()
        if end is None or self.state.clock() <= end:
            return ""
        return f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"

    def watch_deadline(self) -> None:
        end = self.deadline()
        if end is not None:
            self.run.agenda.at(end, self._deadline_passed)

    def _deadline_passed(self) -> None:
        for body in list(self.run.machine.bodies()):
            if not body.call.on_exit and not body.why and not (body.node or {}).get("daemoned"):
                body.end(DEADLINE)
        for suspended in list(self.run.suspended_bodies.values()):
            if not suspended.call.on_exit:
                suspended.end("Failed", DEADLINE)
        self._fail_waiting(DEADLINE)
        self.run.agenda.cut_waits_short()

    # -- stop, suspend, resume

    def shut_down(self, strategy: str) -> None:
        """Stop or Terminate: what runs is ended, what has not started never will."""
        run = self.run
        run.spec["shutdown"] = strategy
        self.state.set_part("spec", shutdown=strategy)
        for body in list(run.machine.bodies()):
            if run.stopped(body.call):
                body.end(cut_off_by(strategy))
        for suspended in list(run.suspended_bodies.values()):
            if run.stopped(suspended.call):
                suspended.end("Failed", f"Stopped with strategy '{strategy}'")
        self._fail_waiting(f"workflow shutdown with strategy: {strategy}")
        for boundary in reversed(list(run.boundaries.values())):  # what is inside first: its end is seen outside
            if not boundary.over and run.stopped(boundary.call):
                boundary.shut_down()
        self._go_on()  # a suspended run ends, too
        run.agenda.cut_waits_short()

    def cut_off(self, node: Node) -> bool:
        """Whether a stop ended pods of this node. In a DAG nothing follows on such a node, nor does its hook run: the
        controller fails a DAG that is stopped before its pods have told how they ended. Nested DAGs are followed."""
        if not self.run.shutdown or node["phase"] not in BAD or node["type"] in (DAG, SUSPEND):
            return False
        if node["type"] == POD:
            return node.get("message") == cut_off_by(self.run.shutdown)
        inside = self._last_group(node) if node["type"] == STEPS else node
        return any(self.cut_off(one) for one in self.state.children(inside))

    def _last_group(self, steps: Node) -> Node:
        last = steps
        for place in itertools.count():
            group = self.state.node(f"{steps['name']}[{place}]")
            if group is None:
                break
            last = group
        return last

    def suspend(self) -> None:
        self.run.spec["suspend"] = True
        self.state.set_part("spec", suspend=True)

    def resume(self) -> None:
        """Go on after a suspension of the whole workflow."""
        if self.run.spec.pop("suspend", None):
            self.state.set_part("spec", suspend=None)
        self._go_on()

    def when_resumed(self, act: Callable[[], None]) -> None:
        self._held_back.append(act)

    def _go_on(self) -> None:
        held_back, self._held_back = self._held_back, []
        for act in held_back:
            self.run.agenda.soon(act)

    # -- locks of templates

    def wait_for_lock(self, call: Call) -> None:
        """Try the call again and again until it has its locks."""
        if not self._waiting_for_lock:
            self.run.agenda.at(self.state.clock() + LOCK_SECONDS, self._try_locks)
        self._waiting_for_lock[call.name] = call

    def _try_locks(self) -> None:
        waiting, self._waiting_for_lock = self._waiting_for_lock, {}
        for call in waiting.values():
            node = call.node
            if node is not None and node["phase"] in ACTIVE:
                self._execute_again(call)

    def _execute_again(self, call: Call) -> None:
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

    def _fail_waiting(self, message: str) -> None:
        """Nodes that wait for a lock get none any more."""
        waiting, self._waiting_for_lock = self._waiting_for_lock, {}
        for call in waiting.values():
            if call.on_exit and self.run.shutdown != "Terminate":
                self._waiting_for_lock[call.name] = call
                continue
            self.run.locks.release(self.state.id_of(call.name))
            self.state.mark(call.name, "Failed", message)
            call.owner.child_changed(call)
