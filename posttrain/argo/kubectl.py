"""kubectl, with its own configuration (KUBECONFIG): for whoever has no Argo server.

What the Argo server would do for an operator is done here by patches, as the `argo` command does
without a server; what needs more than a patch is refused.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from posttrain.argo.cluster import JSON, KINDS, Absent, Unreachable, kind_of
from posttrain.argo.status import waiting_nodes
from posttrain.errors import UserError


class Kubectl:
    """`namespace` None leaves the current one."""

    def __init__(self, namespace: str | None):
        self._command = ["kubectl", *(["-n", namespace] if namespace else [])]
        self.where = "kubectl" + (f", namespace {namespace}" if namespace else "")

    def lint(self, manifest: JSON) -> None:
        """Nothing: without a server there is no second opinion to `posttrain lint`'s."""

    def create(self, manifest: JSON) -> JSON:
        kind_of(manifest)
        return self._json(["create", "-f", "-", "-o", "json"], json.dumps(manifest))

    def replace(self, manifest: JSON) -> JSON:
        kind_of(manifest)
        return self._json(["replace", "-f", "-", "-o", "json"], json.dumps(manifest))

    def get(self, name: str, kind: str = "Workflow") -> JSON:
        return self._json(["get", KINDS[kind][2], name, "-o", "json"])

    def list_all(self, kind: str = "Workflow") -> list[JSON]:
        return self._json(["get", KINDS[kind][2], "-o", "json"])["items"]

    def delete(self, name: str, kind: str = "Workflow") -> None:
        self._run(["delete", KINDS[kind][2], name])

    def stop(self, name: str, *, selector: str = "", message: str = "") -> None:
        if selector or message:
            raise _needs_server("a selector or a message")
        self._patch(name, {"spec": {"shutdown": "Stop"}})

    def terminate(self, name: str) -> None:
        self._patch(name, {"spec": {"shutdown": "Terminate"}})

    def suspend(self, name: str) -> None:
        self._patch(name, {"spec": {"suspend": True}})

    def resume(self, name: str, *, selector: str = "") -> None:
        if selector:
            raise _needs_server("a selector")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        over = {id: {"phase": "Succeeded", "finishedAt": now} for id in waiting_nodes(self.get(name))}
        self._patch(name, {"spec": {"suspend": None}} | ({"status": {"nodes": over}} if over else {}))

    def retry(
        self, name: str, parameters: Mapping[str, str], *, restart_successful: bool = False, selector: str = ""
    ) -> None:
        raise _needs_server("retry")

    def set_outputs(
        self, name: str, selector: str, parameters: Mapping[str, str], *, message: str = "", phase: str = ""
    ) -> None:
        raise _needs_server("setting outputs")

    def pod_log(self, workflow: str, pod: str, *, follow: bool = False) -> Iterator[str]:
        command = [*self._command, "logs", pod, "-c", "main", *(["-f"] if follow else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stderr
            try:
                for line in process.stdout:
                    yield line.rstrip("\n")
                said = process.stderr.read()
                if process.wait():
                    raise self._error("logs", said)
            finally:
                process.kill()

    def apply(self, objects: list[JSON]) -> None:
        """Make objects of any kind, or change them to what is given."""
        self._run(["apply", "-f", "-"], _listed(objects))

    def remove(self, objects: list[JSON]) -> None:
        """Have objects of any kind removed, those that are there."""
        self._run(["delete", "-f", "-", "--ignore-not-found", "--wait=false"], _listed(objects))

    def _patch(self, name: str, change: JSON) -> None:
        self._run(["patch", KINDS["Workflow"][2], name, "--type", "merge", "-p", json.dumps(change)])

    def _json(self, arguments: list[str], text: str | None = None) -> JSON:
        return json.loads(self._run(arguments, text))

    def _run(self, arguments: list[str], text: str | None = None) -> str:
        done = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True)
        if done.returncode != 0:
            raise self._error(arguments[0], done.stderr)
        return done.stdout

    def _error(self, verb: str, said: str) -> UserError:
        kind: type[UserError] = Unreachable
        if "Error from server" in said:
            kind = Absent if "(NotFound)" in said else UserError
        return kind(f"kubectl {verb} failed: {said.strip()}", field=self.where)


def _listed(objects: list[JSON]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def _needs_server(what: str) -> UserError:
    return UserError(f"{what} needs the Argo server", field="ARGO_SERVER", remedy="set it")
