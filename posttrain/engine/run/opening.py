"""Everything before a workflow's first node: what it is made of, its variables, labels and locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions import ExpressionError
from posttrain.engine.expressions.dates import read_shown, shown
from posttrain.engine.library import Library, TemplateNotFound, executed_spec
from posttrain.engine.nodes import FULFILLED
from posttrain.engine.run.globals import GlobalsError, computed_labels, workflow_variables
from posttrain.engine.sync import SyncError
from posttrain.engine.templates import FlatScope, SubstitutionError, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]
LOCK_SECONDS = 0.3


class Opening:
    """Readies a run, also one that is taken up again; then the entry is started."""

    def __init__(self, run: Controller):
        self.run, self.state = run, run.state

    def begin(self) -> None:
        """Up to the start of the entry, unless the workflow ends with this or waits for its locks."""
        run, state = self.run, self.state
        try:
            run.spec = executed_spec(state.workflow["spec"], run.objects)
            run.globals = workflow_variables(state.workflow, run.spec, run.objects, run.settings.namespace)
        except (TemplateNotFound, LookupError) as error:
            run.ending.end("Error", str(error))
            return
        except GlobalsError as error:
            run.ending.end("Failed", f"failed to set global parameters: {error}")
            return
        reference = state.workflow["spec"].get("workflowTemplateRef")
        if reference:
            state.set_status(storedWorkflowTemplateSpec={**run.spec, "workflowTemplateRef": reference})
        self._take_up_outputs()
        kept = {key: run.spec[key] for key in ("templates", "volumes") if key in run.spec}
        bare = {key: one for key, one in run.spec.items() if key not in kept}
        try:
            run.spec = substitute(bare, FlatScope(run.globals)) | kept
        except SubstitutionError as error:
            run.ending.end("Error", str(error))
            return
        self._renew_arguments()
        if run.first_pass and not self._label():
            return
        self._go_in_with_locks()

    def _take_up_outputs(self) -> None:
        """Global outputs of a run that goes on."""
        outputs = self.state.status.get("outputs") or {}
        for one in outputs.get("parameters") or []:
            self.run.globals[f"workflow.outputs.parameters.{one['name']}"] = one.get("value", "")
        for one in outputs.get("artifacts") or []:
            self.run.global_artifacts[f"workflow.outputs.artifacts.{one['name']}"] = one

    def _renew_arguments(self) -> None:
        """Arguments may hold tags themselves; what they stand for is what `workflow.parameters` gives."""
        for one in (self.run.spec.get("arguments") or {}).get("parameters") or []:
            if one.get("value") is not None:
                self.run.globals[f"workflow.parameters.{one['name']}"] = one["value"]

    def _label(self) -> bool:
        run = self.run
        try:
            labels = computed_labels(run.spec, run.globals)
        except ExpressionError as error:
            run.ending.end("Error", str(error))
            return False
        run.globals |= {f"workflow.labels.{name}": text for name, text in labels.items()}
        own = (run.spec.get("workflowMetadata") or {}).get("annotations") or {}
        metadata = self.state.workflow["metadata"]
        self.state.set_part(
            "metadata", labels={**(metadata.get("labels") or {}), **labels},
            annotations={**(metadata.get("annotations") or {}), **own},
        )  # fmt: skip
        return True

    def _go_in_with_locks(self) -> None:
        """Start the entry once the workflow's own locks are to be had."""
        run = self.run
        if run.done:
            return
        wanted = run.spec.get("synchronization")
        try:
            waiting = run.locks.acquire(self.state.name, wanted) if wanted else None
        except SyncError as error:
            run.ending.end("Failed", f"Failed to acquire the synchronization lock. {error}")
            return
        if waiting is None:
            self._mark_running()
            own = not self.state.workflow["spec"].get("workflowTemplateRef")
            run.library = Library(self.state.name if own else "", run.spec, run.objects)
            run.start_root()
        elif run.shutdown == "Terminate":
            run.ending.end("Failed", "Stopped with strategy 'Terminate'")
        else:
            phase = self.state.status.get("phase") or "Pending"
            self.state.set_status(phase=phase, message=waiting.message)
            run.agenda.at(self.state.clock() + LOCK_SECONDS, self._go_in_with_locks)

    def _mark_running(self) -> None:
        run, state = self.run, self.state
        if "" not in state.started:
            began = state.status.get("startedAt")
            state.started[""] = read_shown(began) if began else state.clock()
        state.set_status(phase="Running", message=None, startedAt=shown(state.started[""]), finishedAt=None)
        note_phase(run, "Running")
        run.globals["workflow.status"] = "" if run.first_pass else "Running"
        run.interruptions.watch_deadline()


def note_phase(run: Controller, phase: str) -> None:
    """The labels by which Argo's tools find workflows."""
    labels = dict(run.state.workflow["metadata"].get("labels") or {})
    labels |= {
        "workflows.argoproj.io/phase": phase,
        "workflows.argoproj.io/completed": "true" if phase in FULFILLED else "false",
    }
    run.state.set_part("metadata", labels=labels)
