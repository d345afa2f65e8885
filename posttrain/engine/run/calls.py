"""One call of a template under the name of a node: arguments, limits, locks, then its body, once or with retries.

`execute` may be called again at any time: it makes what is missing and takes up what is there, which
is how a resumed run finds its way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from posttrain.engine.expressions.dates import duration
from posttrain.engine.library import POD_KINDS, Source, TemplateNotFound, kind_of
from posttrain.engine.nodes import (
    ACTIVE,
    DAG,
    FULFILLED,
    POD,
    RETRY,
    SKIPPED,
    STEPS,
    SUSPEND,
    Node,
    pod_name,
)
from posttrain.engine.run.attempts import Attempts
from posttrain.engine.run.errors import DepthExceeded, LimitReached, TemplateError, TimedOut
from posttrain.engine.sync import SyncError
from posttrain.engine.templates import (
    FlatScope,
    SubstitutionError,
    process_arguments,
    substitute,
)

if TYPE_CHECKING:
    from posttrain.engine.run.bodies import Body
    from posttrain.engine.run.boundary import Boundary
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]

MAX_DEPTH = 100
_CHANGING = ("workflow.status", "workflow.duration", "workflow.failures")
NODE_TYPES = {"container": POD, "script": POD, "dag": DAG, "steps": STEPS, "suspend": SUSPEND}
_TOO_DEEP = (
    "Maximum recursion depth exceeded. See "
    "https://argo-workflows.readthedocs.io/en/release-4.0/scaling/#maximum-recursion-depth"
)
FAILED_FAST = "template has failed or errored children and failFast enabled"


class Owner(Protocol):
    """Who called: told of every change of the call's node, and of an error that ended it."""

    def child_changed(self, call: Call) -> None: ...

    def child_failed(self, call: Call, error: TemplateError) -> None: ...


class Call:
    """See the module. `holder` is the step, task or hook; `boundary` the DAG or steps template it stands in."""

    def __init__(
        self,
        run: Controller,
        owner: Owner,
        name: str,
        holder: JSON,
        source: Source,
        arguments: JSON,
        *,
        boundary: Boundary | None,
        depth: int,
        on_exit: bool = False,
        hook: bool = False,
        family: str = "steps",
    ):
        self.run, self.owner, self.name, self.holder, self.source = run, owner, name, holder, source
        self.arguments, self.boundary, self.depth, self.on_exit = arguments, boundary, depth, on_exit
        self.hook, self.family = hook, family
        self.template: JSON = {}
        self.raw_template: JSON = {}
        self.body: Body | None = None
        self.attempts = Attempts(self)
        self.holds_lock = False
        self.key: Any = None  # the owner's own
        self._told: tuple[str, bool] | None = None

    @property
    def node(self) -> Node | None:
        return self.run.state.node(self.name)

    @property
    def boundary_id(self) -> str:
        return self.boundary.id if self.boundary else ""

    @property
    def flags(self) -> JSON | None:
        return {"hooked": True} if self.hook else None

    @property
    def retry_strategy(self) -> JSON | None:
        own = self.template.get("retryStrategy")
        return own if own is not None else self.run.spec.get("retryStrategy")

    def execute(self) -> Node:
        """Make or take up the node. Raises TemplateError (the node then says so) and LimitReached (there is none)."""
        node = self.node
        if self.depth >= MAX_DEPTH:
            self.fail(_TOO_DEEP)
            raise DepthExceeded(_TOO_DEEP)
        if node is not None and node["phase"] in FULFILLED:
            return self._finish(node)
        self._prepare()
        node = self.node
        if node is not None and self._waited_too_long(node):
            self.release()
            self.run.state.mark(self.name, "Failed", "timeout")
            raise TimedOut("timeout")
        self.check_limits(node)
        if self.template.get("synchronization") and not self.holds_lock and not self._acquire(node):
            node = self.node
            assert node is not None
            return node
        return self._start()

    def _waited_too_long(self, node: Node) -> bool:
        if node["phase"] != "Pending" or not self.template.get("timeout"):
            return False
        return self.run.state.clock() > self.run.state.start_of(node) + duration(self.template["timeout"])

    def _prepare(self) -> None:
        if self.template:
            return
        state = self.run.state
        try:
            self.raw_template, self.inner_source = self.run.library.resolve(self.holder, self.source)
        except TemplateNotFound as error:
            raise self.fail(str(error)) from None
        if self.inner_source is not self.run.library.local and self.holder.get("inline") is None:
            state.keep_template(f"{self.inner_source.scope}/{self.raw_template['name']}", self.raw_template)
        local = {"node.name": self.name, f"{self.family}.name": self.holder.get("name", "")}
        strategy = self.raw_template.get("retryStrategy")
        strategy = strategy if strategy is not None else self.run.spec.get("retryStrategy")
        if kind_of(self.raw_template) in POD_KINDS and strategy is None:
            local["pod.name"] = pod_name(state.name, state.id_of(self.name), self.raw_template.get("name", ""))
        try:
            self.template = self._processed(local)
        except SubstitutionError as error:
            raise self.fail(str(error)) from None

    def _processed(self, local: dict[str, str]) -> JSON:
        """The template with its arguments. In one that lasts, what may change is left for its steps to fill in."""
        globals, find = self.run.globals, self.run.objects.parameter
        if kind_of(self.raw_template) not in ("dag", "steps"):
            return process_arguments(self.raw_template, self.arguments, globals, local, find)
        steady = {name: text for name, text in globals.items() if name not in _CHANGING}
        template = process_arguments(self.raw_template, self.arguments, steady, local, find)
        if "inputs" in template:
            template["inputs"] = substitute(template["inputs"], FlatScope(globals))
        return template

    def fail(self, message: str) -> TemplateError:
        """Make the node an Error; gives the exception to raise."""
        if self.node is None:
            self.run.state.create(
                self.name, SKIPPED, "Error", holder=self.holder, scope=self.source.scope, boundary=self.boundary_id,
                message=message, flags=self.flags,
            )  # fmt: skip
        else:
            self.run.state.mark(self.name, "Error", message)
        return TemplateError(message)

    def create(
        self, name: str, kind: str, phase: str, template: JSON, *, flags: JSON | None, message: str = ""
    ) -> Node:
        """A node of this call with the inputs of `template`."""
        inputs = {side: value for side, value in (template.get("inputs") or {}).items() if value}
        return self.run.state.create(
            name, kind, phase, holder=self.holder, scope=self.source.scope, boundary=self.boundary_id, message=message,
            flags=flags, inputs=inputs or None,
        )  # fmt: skip

    def check_limits(self, node: Node | None) -> None:
        """Raises LimitReached where parallelism or failFast lets nothing more start."""
        state, boundary = self.run.state, self.boundary
        limit = self.run.spec.get("parallelism")
        if node is not None and (node["phase"] == "Running" or (node["phase"] in ACTIVE and self.body is not None)):
            return  # it has started, maybe under an engine before this one
        if self.run.stopped(self):
            return  # it ends as it starts
        if limit is not None and state.active_pods() >= limit and (node is None or node["type"] != POD):
            raise LimitReached
        if boundary is None or (node is not None and node["phase"] in ACTIVE):
            return
        if boundary.template.get("failFast") and state.bad_children(boundary.id):
            self.run.agenda.soon(boundary.check_fail_fast)
            raise LimitReached
        own = boundary.template.get("parallelism")
        if own is not None and own > 0 and state.active_children(boundary.id) >= own:
            raise LimitReached

    def _acquire(self, node: Node | None) -> bool:
        """Take the template's locks, or leave a Pending node that says what it waits for."""
        state = self.run.state
        try:
            waiting = self.run.locks.acquire(state.id_of(self.name), self.template["synchronization"])
        except SyncError as error:
            raise self.fail(str(error)) from None
        if waiting is None:
            self.holds_lock = True
            if node is not None and node.get("synchronizationStatus"):
                state.change(node, {"synchronizationStatus": None, "message": None})
            return True
        if node is None:
            kind = NODE_TYPES.get(kind_of(self.template) or "", SKIPPED)
            node = self.create(self.name, kind, "Pending", self.template, flags=self.flags)
        state.change(node, {"synchronizationStatus": {"waiting": waiting.lock}, "message": waiting.message})
        self.run.interruptions.wait_for_lock(self)
        return False

    def release(self) -> None:
        if self.template.get("synchronization"):
            self.run.locks.release(self.run.state.id_of(self.name))
            self.holds_lock = False

    def _start(self) -> Node:
        node = self.node
        if self.retry_strategy is None:
            if self.body is None:
                self.body = self.run.body_of(self, self.name, self.template, self.flags)
            self.start_body(self.body)
        else:
            if node is None:
                flags = {**self.flags, "retried": True} if self.flags else None  # a hook's carries its attempts' flag
                self.create(self.name, RETRY, "Running", self.template, flags=flags)
            elif node["type"] == RETRY and node["phase"] == "Pending":
                self.run.state.mark(self.name, "Running", "")
            self.attempts.go_on()
        node = self.node
        assert node is not None
        return self._finish(node) if node["phase"] in FULFILLED else node

    def start_body(self, body: Body) -> None:
        try:
            body.start()
        except TemplateError as error:
            self._body_broke(body, error)

    def _body_broke(self, body: Body, error: TemplateError) -> None:
        """A body that could not be made or ended: its node is Error, and unless that is retried so is the call."""
        if self.run.state.node(body.name) is not None:
            self.run.state.mark(body.name, "Error", str(error))
        strategy = self.retry_strategy
        policy = (strategy or {}).get("retryPolicy") or (
            "Always" if (strategy or {}).get("expression") else "OnFailure"
        )
        if strategy is None or policy == "OnFailure":
            self.release()
            raise error

    # -- what bodies report

    def body_changed(self, body: Body) -> None:
        """The node of a body of this call has changed."""
        if body is self.attempts.current:
            self.attempts.changed()
        node = self.node
        if node is not None:
            self.tell(node)

    def body_failed(self, body: Body, error: TemplateError) -> None:
        """A body ended in an error of the template's own, some time after it was started."""
        try:
            self._body_broke(body, error)
        except TemplateError:
            self.owner.child_failed(self, error)
            return
        self.body_changed(body)

    def tell(self, node: Node) -> None:
        now = (node["phase"], bool(node.get("daemoned")))
        if now != self._told:
            self._told = now
            if node["phase"] in FULFILLED:
                self._finish(node)
            self.owner.child_changed(self)

    def _finish(self, node: Node) -> Node:
        self.release()
        self._told = (node["phase"], bool(node.get("daemoned")))
        return node
