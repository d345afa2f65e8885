"""What a cluster is to the rest: workflows as Kubernetes gives them, and what an operator may do to them.

Invariants: every failure that the user can mend (no server there, a token refused, a manifest
refused) is a `UserError`; a workflow is a plain dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from posttrain.errors import UserError

JSON = dict[str, Any]

# kind -> (its collection in a URL of the Argo server, what a request's body calls it, Kubernetes' name of it)
KINDS = {
    "Workflow": ("workflows", "workflow", "workflows.argoproj.io"),
    "CronWorkflow": ("cron-workflows", "cronWorkflow", "cronworkflows.argoproj.io"),
    "WorkflowTemplate": ("workflow-templates", "template", "workflowtemplates.argoproj.io"),
}


class Unreachable(UserError):
    """The cluster did not answer; the same question may be answered later."""


class Absent(UserError):
    """There is nothing of that name."""


class Cluster(Protocol):
    """Where a manifest can be submitted to. `where` says it in a few words.

    Operations have the words of the `argo` command. `selector` is a node field selector, such as
    `displayName=approve`; without one, `stop` and `resume` mean the workflow.
    """

    where: str

    def lint(self, manifest: JSON) -> None: ...
    def create(self, manifest: JSON) -> JSON: ...
    def replace(self, manifest: JSON) -> JSON: ...
    def get(self, name: str, kind: str = "Workflow") -> JSON: ...
    def list_all(self, kind: str = "Workflow") -> list[JSON]: ...
    def delete(self, name: str, kind: str = "Workflow") -> None: ...
    def stop(self, name: str, *, selector: str = "", message: str = "") -> None: ...
    def terminate(self, name: str) -> None: ...
    def suspend(self, name: str) -> None: ...
    def resume(self, name: str, *, selector: str = "") -> None: ...
    def retry(
        self, name: str, parameters: Mapping[str, str], *, restart_successful: bool = False, selector: str = ""
    ) -> None: ...
    def set_outputs(
        self, name: str, selector: str, parameters: Mapping[str, str], *, message: str = "", phase: str = ""
    ) -> None: ...
    def pod_log(self, workflow: str, pod: str, *, follow: bool = False) -> Iterator[str]:
        """Lines of the pod's main container. Raises Absent where the pod is gone."""
        ...


def kind_of(manifest: JSON) -> str:
    """The manifest's kind. UserError for one that is not Argo's."""
    kind = manifest.get("kind")
    if kind not in KINDS:
        raise UserError("cannot be submitted", field="kind", value=kind, remedy=f"known: {', '.join(KINDS)}")
    return kind
