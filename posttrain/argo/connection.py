"""Two ways to a cluster with one interface: the Argo server's REST API, and kubectl.

Invariants: every failure that the user can mend (no server there, a token refused, a manifest
refused) is a `UserError`; a workflow is a plain dict, as Kubernetes gives it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, Protocol

from posttrain.argo.settings import Settings, read_settings
from posttrain.errors import UserError

TIMEOUT = 30.0

# kind -> (its collection in a URL, what a request's body calls it)
KINDS = {
    "Workflow": ("workflows", "workflow"),
    "CronWorkflow": ("cron-workflows", "cronWorkflow"),
    "WorkflowTemplate": ("workflow-templates", "template"),
}

JSON = dict[str, Any]


class Unreachable(UserError):
    """The cluster did not answer; the same question may be answered later."""


class Cluster(Protocol):
    """Where a manifest can be submitted to. `where` says it in a few words."""

    where: str

    def lint(self, manifest: JSON) -> None: ...
    def create(self, manifest: JSON) -> JSON: ...
    def get(self, name: str) -> JSON: ...


def connect(*, namespace: str | None = None) -> Cluster:
    """The Argo server that the environment names; else kubectl, where it is installed."""
    settings = read_settings(os.environ, namespace=namespace)
    if settings.server:
        return Server(settings)
    if shutil.which("kubectl") is None:
        raise UserError("no cluster is known", field="ARGO_SERVER", remedy="set it, or put kubectl on PATH")
    return Kubectl(namespace or os.environ.get("ARGO_NAMESPACE") or None)


class Server:
    """The REST API of the Argo server."""

    def __init__(self, settings: Settings):
        import httpx  # a tenth of a second that kubectl's users do not pay

        self._settings = settings
        self.where = f"{settings.server}, namespace {settings.namespace}"
        headers = {}
        if settings.token:
            scheme = settings.token if " " in settings.token else f"Bearer {settings.token}"
            headers["Authorization"] = scheme
        self._http = httpx.Client(
            base_url=f"{settings.server}/api/v1/", headers=headers, verify=settings.verify, timeout=TIMEOUT
        )
        self._unreachable = (httpx.TransportError, httpx.InvalidURL)

    def lint(self, manifest: JSON) -> None:
        """Ask the server for its own validation; UserError with what it says."""
        self._send("POST", manifest["kind"], "/lint", manifest)

    def create(self, manifest: JSON) -> JSON:
        return self._send("POST", manifest["kind"], "", manifest)

    def get(self, name: str) -> JSON:
        return self._send("GET", "Workflow", f"/{name}")

    def _send(self, method: str, kind: str, tail: str, manifest: JSON | None = None) -> JSON:
        namespace = self._settings.namespace
        if kind not in KINDS:
            raise UserError("cannot be submitted", field="kind", value=kind, remedy=f"known: {', '.join(KINDS)}")
        collection, key = KINDS[kind]
        body = None
        if manifest is not None:
            manifest = manifest | {"metadata": manifest.get("metadata", {}) | {"namespace": namespace}}
            body = {"namespace": namespace, key: manifest}
        try:
            answer = self._http.request(method, f"{collection}/{namespace}{tail}", json=body)
        except self._unreachable as problem:
            raise Unreachable(
                f"does not answer: {problem}", field="ARGO_SERVER", value=self._settings.server,
                remedy="see ARGO_SECURE and ARGO_INSECURE_SKIP_VERIFY if it does run",
            ) from None  # fmt: skip
        if answer.status_code in (401, 403):
            raise UserError(f"refused: {_message(answer)}", field="ARGO_TOKEN", remedy="give a token that may do this")
        if answer.status_code >= 500:
            raise Unreachable(f"the Argo server failed: {_message(answer)}", field=self.where)
        if answer.is_error:
            raise UserError(f"the Argo server refused: {_message(answer)}", field=self.where)
        return answer.json()


class Kubectl:
    """kubectl, with its own configuration (KUBECONFIG). `namespace` None leaves the current one."""

    def __init__(self, namespace: str | None):
        self._namespace = ["-n", namespace] if namespace else []
        self.where = "kubectl" + (f", namespace {namespace}" if namespace else "")

    def lint(self, manifest: JSON) -> None:
        """Nothing: without a server there is no second opinion to `posttrain lint`'s."""

    def create(self, manifest: JSON) -> JSON:
        return self._run(["create", "-f", "-", "-o", "json"], json.dumps(manifest))

    def get(self, name: str) -> JSON:
        return self._run(["get", "workflows.argoproj.io", name, "-o", "json"])

    def _run(self, arguments: list[str], text: str | None = None) -> JSON:
        done = subprocess.run(["kubectl", *self._namespace, *arguments], input=text, capture_output=True, text=True)
        if done.returncode != 0:
            kind = UserError if "Error from server" in done.stderr else Unreachable
            raise kind(f"kubectl {arguments[0]} failed: {done.stderr.strip()}", field="kubectl")
        return json.loads(done.stdout)


def _message(answer: Any) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
