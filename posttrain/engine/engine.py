"""The embedded engine: runs of a workspace, driven, looked at and operated on.

An `Engine` holds nothing but paths and settings; runs live on disk, so any number of processes may
look at them, and one at a time drives each.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from posttrain.engine import operations, retrying
from posttrain.engine.following import read_logs
from posttrain.engine.linting import lint
from posttrain.engine.manifest import Manifest, Objects
from posttrain.engine.manifest.yaml import write_documents
from posttrain.engine.nodes import FULFILLED, POD
from posttrain.engine.objects import letters, with_parameters, workflow_object, workflow_of
from posttrain.engine.pods import PodRunner
from posttrain.engine.run.controller import Controller
from posttrain.engine.run.launch import clear
from posttrain.engine.run.state import RunState
from posttrain.engine.settings import EngineSettings
from posttrain.engine.store import RunStore
from posttrain.errors import UserError

JSON = dict[str, Any]
OnEvent = Callable[[JSON], None]
_GRACE_SECONDS = 30.0


class Engine:
    """Runs of one workspace, under `<workspace>/engine`."""

    def __init__(self, workspace: str | Path, *, settings: EngineSettings | None = None):
        self.workspace = Path(workspace).absolute()
        self.settings = settings or EngineSettings()

    def store(self, name: str) -> RunStore:
        """The directory of a run. Raises UserError for what is no name."""
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            raise UserError("is no name of a run", field="run", value=name)
        return RunStore(self.workspace / "engine" / name)

    # -- making and driving

    def submit(self, manifest: Manifest, parameters: Mapping[str, str] | None = None, name: str | None = None) -> str:
        """Make a run of a workflow and give its name; nothing is started. Raises UserError for a bad manifest."""
        findings = lint(manifest, parameters=parameters or {})
        if findings:
            first = findings[0]
            raise UserError(first.message, field=f"{first.file}:{first.line}: {first.path}")
        workflow = workflow_of(manifest, parameters or {}, name, self.settings.namespace)
        documents = [*manifest.objects.documents(), {k: v for k, v in workflow.items() if k != "status"}]
        text = write_documents(documents)
        self.store(workflow["metadata"]["name"]).create(workflow, text)
        return workflow["metadata"]["name"]

    def run(self, name: str, on_event: OnEvent | None = None) -> str:
        """Drive a run until it has ended; gives its phase. A run that has ended already is left as it is.

        Raises UserError where another engine drives it, or its files cannot be read or written.
        """
        store = self.store(name)
        if not store.exists():
            raise UserError("there is no such run", field="run", value=name)
        store.acquire()
        try:
            store.open_journal()
            state = store.read()
            wait_for_left_over = _end_left_over(store, state)
            if state.status.get("phase") in FULFILLED:
                wait_for_left_over()
                return state.status["phase"]
            objects = Objects.of(store.manifest()[:-1])
            controller = Controller(store, state, objects, self.settings, self.workspace, on_event)
            controller.drive(operations.take_orders(store))
            wait_for_left_over()
            return state.status["phase"]
        finally:
            store.release()

    # -- looking

    def get(self, name: str) -> JSON:
        """The run's Workflow object, as Argo would give it."""
        return workflow_object(self.store(name).read())

    def exists(self, name: str) -> bool:
        """Whether there is a run of this name."""
        return self.store(name).exists()

    def phase(self, name: str) -> str | None:
        """The run's phase, "" before it has one, None where there is no such run."""
        store = self.store(name)
        return store.read().status.get("phase", "") if store.exists() else None

    def list(self) -> list[JSON]:
        """Every run, oldest first: {name, phase, message, startedAt, finishedAt, created, driven, labels}."""
        found: list[JSON] = []
        for store, state in self._states():
            status, metadata = state.status, state.workflow["metadata"]
            found.append(
                {
                    "name": store.directory.name,
                    "phase": status.get("phase", ""), "message": status.get("message", ""),
                    "startedAt": status.get("startedAt"), "finishedAt": status.get("finishedAt"),
                    "created": metadata["creationTimestamp"], "driven": store.held(),
                    "labels": metadata.get("labels") or {},
                }
            )  # fmt: skip
        return sorted(found, key=lambda one: (one["created"], one["name"]))

    def workflows(self) -> Iterator[tuple[JSON, bool]]:
        """Every run, oldest first: its Workflow object, and whether an engine drives it."""
        found = [(workflow_object(state), store.held()) for store, state in self._states()]
        yield from sorted(found, key=lambda one: (one[0]["metadata"]["creationTimestamp"], one[0]["metadata"]["name"]))

    def _states(self) -> Iterator[tuple[RunStore, RunState]]:
        root = self.workspace / "engine"
        for directory in root.iterdir() if root.exists() else ():
            store = RunStore(directory)
            if not directory.name.startswith(".") and store.exists():
                yield store, store.read()

    def events(self, name: str) -> Iterator[JSON]:
        """Everything that happened so far: {time, type, node, phase, message}."""
        for entry in self.store(name).entries():
            yield from entry["events"]

    def logs(self, name: str, node: str | None = None, follow: bool = False) -> Iterator[tuple[str, str]]:
        """(display name of the node, line) of what containers wrote, node by node; with `follow` as it comes.

        `node` is a node's name, display name or id. Raises UserError where there is none.
        """
        return read_logs(self.store(name), node, follow=follow)

    # -- operating

    def stop(self, name: str, selector: str = "", message: str = "") -> None:
        """Stop the run; exit handlers run. With a selector: fail the suspended nodes that are meant."""
        self._order(name, "stop", selector=selector, message=message)

    def terminate(self, name: str) -> None:
        """End the run; no exit handler runs."""
        self._order(name, "terminate")

    def suspend(self, name: str) -> None:
        """Start nothing new; what runs goes on."""
        self._order(name, "suspend")

    def resume(self, name: str, selector: str = "") -> None:
        """Let suspended nodes go on: those that are meant, or all and the run itself."""
        self._order(name, "resume", selector=selector)

    def set_outputs(
        self, name: str, selector: str, parameters: Mapping[str, str], *, message: str = "", phase: str = ""
    ) -> None:
        """Set supplied outputs (or a message, or the phase) of suspended nodes."""
        self._order(name, "set", selector=selector, parameters=dict(parameters), message=message, phase=phase)

    def retry(
        self,
        name: str,
        parameters: Mapping[str, str] | None = None,
        *,
        restart_successful: bool = False,
        selector: str = "",
    ) -> None:
        """Make a run that has ended ready to go on; `run` then drives it."""
        store = self.store(name)
        store.acquire()
        try:
            store.open_journal()
            state = store.read()
            gone = retrying.prepare(state, restart_successful=restart_successful, selector=selector)
            spec = state.workflow["spec"]
            state.set_part(
                "spec",
                arguments=with_parameters(spec.get("arguments") or {}, parameters or {}),
                shutdown=None,
                suspend=None,
            )
            state.set_status(phase="Running", message=None, finishedAt=None)
            for id in gone:
                clear(store.pods / id)
            operations.forget(store)
            store.commit(state, final=True)
        finally:
            store.release()

    def resubmit(self, name: str, parameters: Mapping[str, str] | None = None, new_name: str | None = None) -> str:
        """A new run of what `name` was made from; gives its name."""
        *others, document = self.store(name).manifest()
        if new_name is None:
            stem = re.sub(r"-[a-z0-9]{5}$", "", name)
            new_name = f"{stem}-{letters()}"
        return self.submit(Manifest(document, Objects.of(others), file=f"run {name}"), parameters, new_name)

    def delete(self, name: str) -> None:
        """Remove a run that nobody drives, with all it kept. Raises UserError for one that has not ended."""
        store = self.store(name)
        phase = self.phase(name)
        if phase is None:
            raise UserError("there is no such run", field="run", value=name)
        store.acquire()
        try:
            if phase not in FULFILLED and any(store.pods.iterdir()):
                raise UserError("has not ended", field="run", value=name, remedy="terminate it first")
            gone = store.directory.with_name(f".{name}.gone")
            store.directory.rename(gone)
        finally:
            store.release()
        shutil.rmtree(gone, ignore_errors=True)

    def _order(self, name: str, operation: str, **arguments: Any) -> None:
        store = self.store(name)
        if self.get(name)["status"].get("phase") in FULFILLED:
            raise UserError(f"workflow {name} has ended", field=operation)
        operations.ask(store, operation, arguments)


def _end_left_over(store: RunStore, state: RunState) -> Callable[[], None]:
    """End the pods whose end was decided by an engine that was killed before it could do it; gives a wait for that."""
    ended = [
        str(store.pods / one["id"]) for one in state.nodes.values() if one["type"] == POD and one["phase"] in FULFILLED
    ]
    runner = PodRunner(store.pods)
    try:
        left = [one for one in ended if runner.alive(one)]
        for one in left:
            runner.stop(one, _GRACE_SECONDS)
    finally:
        runner.close()

    def wait() -> None:
        while any(runner.alive(one) for one in left):
            time.sleep(0.1)

    return wait
