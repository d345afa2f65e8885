"""What a pod knows of itself (the downward API), and the environment of its containers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from posttrain.engine.nodes import Node
from posttrain.engine.run.errors import TemplateError
from posttrain.units import quantity

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]


class PodFields:
    """See the module. `ip` is the pod's address, `name` its name."""

    def __init__(self, run: Controller, node: Node, name: str, ip: str, template: JSON):
        self.run, self.name, self.ip = run, name, ip
        metadata = template.get("metadata") or {}
        own = run.spec.get("podMetadata") or {}
        base = {"workflows.argoproj.io/workflow": run.state.name, "workflows.argoproj.io/completed": "false"}
        self.labels = {**base, **(metadata.get("labels") or {}), **(own.get("labels") or {})}
        noted = {"workflows.argoproj.io/node-name": node["name"], "workflows.argoproj.io/node-id": node["id"]}
        self.annotations = {**noted, **(metadata.get("annotations") or {}), **(own.get("annotations") or {})}
        self.service_account = template.get("serviceAccountName") or run.spec.get("serviceAccountName") or "default"

    def field(self, path: str) -> str:
        for prefix, table in (("metadata.labels", self.labels), ("metadata.annotations", self.annotations)):
            if path.startswith(prefix + "['") and path.endswith("']"):
                return table.get(path[len(prefix) + 2 : -2], "")
        host = os.uname().nodename
        known = {
            "metadata.name": self.name, "metadata.namespace": self.run.settings.namespace, "metadata.uid": self.name,
            "spec.nodeName": host, "spec.serviceAccountName": self.service_account, "status.podIP": self.ip,
            "status.podIPs": self.ip, "status.hostIP": "127.0.0.1", "status.hostIPs": "127.0.0.1",
        }  # fmt: skip
        if path not in known:
            raise TemplateError(f"fieldRef {path} is not known")
        return known[path]

    def environment(self, container: JSON) -> list[JSON]:
        found: dict[str, str] = {}
        for source in container.get("envFrom") or []:
            for key, value in self._all_of(source).items():
                found[source.get("prefix", "") + key] = value
        for variable in container.get("env") or []:
            value = variable.get("value", "")
            if variable.get("valueFrom"):
                taken = self._value(variable["valueFrom"], container)
                if taken is None:
                    continue
                value = taken
            found.pop(variable["name"], None)
            found[variable["name"]] = value
        return [{"name": name, "value": value} for name, value in found.items()]

    def _all_of(self, source: JSON) -> Mapping[str, str]:
        objects = self.run.objects
        kinds = (("configMapRef", objects.config_maps), ("secretRef", objects.secrets))
        reference, table = next((source[kind], table) for kind, table in kinds if source.get(kind))
        if reference["name"] not in table:
            if reference.get("optional"):
                return {}
            raise TemplateError(f"there is no {reference['name']!r} to take the environment from")
        document = table[reference["name"]]
        if table is objects.config_maps:
            return document.get("data") or {}
        keys = [*(document.get("data") or {}), *(document.get("stringData") or {})]
        return {key: objects.secret_value(reference["name"], key) for key in keys}

    def _value(self, source: JSON, container: JSON) -> str | None:
        objects = self.run.objects
        if source.get("fieldRef"):
            return self.field(source["fieldRef"]["fieldPath"])
        if source.get("resourceFieldRef"):
            return _resource(source["resourceFieldRef"], container)
        for kind, find in (("configMapKeyRef", objects.config_value), ("secretKeyRef", objects.secret_value)):
            if source.get(kind):
                try:
                    return find(source[kind].get("name", ""), source[kind]["key"])
                except LookupError as error:
                    if source[kind].get("optional"):
                        return None
                    raise TemplateError(error.args[0]) from None
        raise TemplateError("an environment variable has a valueFrom that is not known")


def _resource(reference: JSON, container: JSON) -> str:
    side, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    value = (resources.get(side) or {}).get(name, (resources.get("limits") or {}).get(name, 0))
    divisor = quantity(reference.get("divisor") or "1", "divisor") or 1
    return str(-int(-quantity(value, reference["resource"]) // divisor))


def looked_up(find: Callable[[str, str], str], selector: JSON) -> str:
    try:
        return find(selector.get("name", ""), selector.get("key", ""))
    except LookupError as error:
        raise TemplateError(error.args[0]) from None
