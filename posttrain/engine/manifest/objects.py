"""The objects that stand beside a workflow: templates it refers to, config maps, secrets, claims."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

JSON = dict[str, Any]

PARAMETER_LABEL = "workflows.argoproj.io/configmap-type"


@dataclass
class Objects:
    """By kind and name. Config maps and secrets are kept as their data."""

    workflow_templates: dict[str, JSON] = field(default_factory=dict)
    cluster_workflow_templates: dict[str, JSON] = field(default_factory=dict)
    config_maps: dict[str, JSON] = field(default_factory=dict)
    secrets: dict[str, JSON] = field(default_factory=dict)
    claims: dict[str, JSON] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[JSON]) -> Self:
        """All of these."""
        objects = cls()
        for document in documents:
            objects.add(document)
        return objects

    def add(self, document: JSON) -> None:
        """Keep one more document of a kind in `SUPPORTED`."""
        getattr(self, SUPPORTED[document["kind"]])[document["metadata"]["name"]] = document

    def documents(self) -> list[JSON]:
        """All of them, to be stored."""
        return [one for table in SUPPORTED.values() for one in getattr(self, table).values()]

    def parameter(self, name: str, key: str) -> str:
        """A value of a config map that is labelled as a source of parameters. Raises LookupError with Argo's words."""
        found = self.config_maps.get(name)
        label = ((found or {}).get("metadata") or {}).get("labels") or {}
        if found is None or PARAMETER_LABEL not in label:
            raise LookupError(
                f"ConfigMap '{name}' does not exist. Please make sure it has the label {PARAMETER_LABEL}: "
                "Parameter to be detectable by the controller"
            )
        if label[PARAMETER_LABEL] != "Parameter":
            raise LookupError(
                f"ConfigMap '{name}' needs to have the label {PARAMETER_LABEL}: Parameter to load parameters"
            )
        return self.config_value(name, key)

    def config_value(self, name: str, key: str) -> str:
        """A value of any config map. Raises LookupError."""
        found = self.config_maps.get(name)
        if found is None:
            raise LookupError(f"ConfigMap '{name}' does not exist")
        if key not in (found.get("data") or {}):
            raise LookupError(f"ConfigMap '{name}' does not have the key '{key}'")
        return str(found["data"][key])

    def secret_value(self, name: str, key: str) -> str:
        """A value of a secret. Raises LookupError."""
        found = self.secrets.get(name)
        if found is None:
            raise LookupError(f"Secret '{name}' does not exist")
        if key in (found.get("stringData") or {}):
            return str(found["stringData"][key])
        if key not in (found.get("data") or {}):
            raise LookupError(f"Secret '{name}' does not have the key '{key}'")
        return base64.b64decode(found["data"][key]).decode()


SUPPORTED = {
    "WorkflowTemplate": "workflow_templates",
    "ClusterWorkflowTemplate": "cluster_workflow_templates",
    "ConfigMap": "config_maps",
    "Secret": "secrets",
    "PersistentVolumeClaim": "claims",
}
