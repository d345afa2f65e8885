"""The REST API of the Argo server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from posttrain.argo.cluster import JSON, KINDS, Absent, Unreachable, kind_of
from posttrain.argo.settings import Settings
from posttrain.errors import UserError

TIMEOUT = 30.0


class Server:
    def __init__(self, settings: Settings):
        self._settings = settings
        self.where = f"{settings.server}, namespace {settings.namespace}"
        try:
            self._http = httpx.Client(
                base_url=f"{settings.server}/api/v1/", headers=settings.headers, verify=settings.verify, timeout=TIMEOUT
            )
        except httpx.InvalidURL as problem:
            raise self._unreachable(problem) from None

    def lint(self, manifest: JSON) -> None:
        """Ask the server for its own validation; UserError with what it says."""
        self._write("POST", "/lint", manifest)

    def create(self, manifest: JSON) -> JSON:
        return self._write("POST", "", manifest)

    def replace(self, manifest: JSON) -> JSON:
        """Put the manifest in the place of the one of its name."""
        kind, name = kind_of(manifest), manifest["metadata"]["name"]
        version = self.get(name, kind)["metadata"]["resourceVersion"]
        return self._write("PUT", f"/{name}", manifest, resourceVersion=version)

    def get(self, name: str, kind: str = "Workflow") -> JSON:
        return self._send("GET", kind, f"/{name}")

    def list_all(self, kind: str = "Workflow") -> list[JSON]:
        return self._send("GET", kind, "").get("items") or []

    def delete(self, name: str, kind: str = "Workflow") -> None:
        self._send("DELETE", kind, f"/{name}")

    def stop(self, name: str, *, selector: str = "", message: str = "") -> None:
        self._operate(name, "stop", nodeFieldSelector=selector, message=message)

    def terminate(self, name: str) -> None:
        self._operate(name, "terminate")

    def suspend(self, name: str) -> None:
        self._operate(name, "suspend")

    def resume(self, name: str, *, selector: str = "") -> None:
        self._operate(name, "resume", nodeFieldSelector=selector)

    def retry(
        self, name: str, parameters: Mapping[str, str], *, restart_successful: bool = False, selector: str = ""
    ) -> None:
        given = [f"{key}={value}" for key, value in parameters.items()]
        self._operate(name, "retry", restartSuccessful=restart_successful, nodeFieldSelector=selector, parameters=given)

    def set_outputs(
        self, name: str, selector: str, parameters: Mapping[str, str], *, message: str = "", phase: str = ""
    ) -> None:
        outputs = json.dumps(dict(parameters)) if parameters else ""
        self._operate(name, "set", nodeFieldSelector=selector, outputParameters=outputs, message=message, phase=phase)

    def pod_log(self, workflow: str, pod: str, *, follow: bool = False) -> Iterator[str]:
        query = {"podName": pod, "logOptions.container": "main", "logOptions.follow": str(follow).lower()}
        limits = httpx.Timeout(TIMEOUT, read=None if follow else TIMEOUT)
        path = f"workflows/{self._settings.namespace}/{workflow}/log"
        try:
            with self._http.stream("GET", path, params=query, timeout=limits) as answer:
                if answer.is_error:
                    answer.read()
                    self._refuse(answer)
                for line in answer.iter_lines():
                    entry = json.loads(line) if line else {}
                    if "error" in entry:
                        raise Absent(str(entry["error"].get("message")), field=f"pod {pod}")
                    if "result" in entry:
                        yield entry["result"].get("content", "")
        except httpx.TransportError as problem:
            raise self._unreachable(problem) from None

    def _operate(self, name: str, verb: str, **arguments: Any) -> None:
        body = {"name": name, "namespace": self._settings.namespace} | {k: v for k, v in arguments.items() if v}
        self._send("PUT", "Workflow", f"/{name}/{verb}", body)

    def _write(self, method: str, tail: str, manifest: JSON, **metadata: str) -> JSON:
        kind, namespace = kind_of(manifest), self._settings.namespace
        manifest = manifest | {"metadata": manifest.get("metadata", {}) | {"namespace": namespace} | metadata}
        return self._send(method, kind, tail, {"namespace": namespace, KINDS[kind][1]: manifest})

    def _send(self, method: str, kind: str, tail: str, body: JSON | None = None) -> JSON:
        try:
            answer = self._http.request(method, f"{KINDS[kind][0]}/{self._settings.namespace}{tail}", json=body)
        except (httpx.TransportError, httpx.InvalidURL) as problem:
            raise self._unreachable(problem) from None
        if answer.is_error:
            self._refuse(answer)
        return answer.json()

    def _unreachable(self, problem: Exception) -> Unreachable:
        return Unreachable(
            f"does not answer: {problem}", field="ARGO_SERVER", value=self._settings.server,
            remedy="see ARGO_SECURE and ARGO_INSECURE_SKIP_VERIFY if it does run",
        )  # fmt: skip

    def _refuse(self, answer: httpx.Response) -> None:
        said = _message(answer)
        if answer.status_code in (401, 403):
            raise UserError(f"refused: {said}", field="ARGO_TOKEN", remedy="give a token that may do this")
        if answer.status_code == 404:
            raise Absent(said, field=self.where)
        if answer.status_code >= 500:
            raise Unreachable(f"the Argo server failed: {said}", field=self.where)
        raise UserError(f"the Argo server refused: {said}", field=self.where)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
