"""A manifest as text: what a reader looks for comes first, and equal manifests give equal bytes."""

from __future__ import annotations

from typing import Any

import yaml

from posttrain.engine.manifest.yaml import Dumper

_FIRST = (
    "apiVersion", "kind", "name", "metadata", "schedules", "timezone", "concurrencyPolicy", "entrypoint", "onExit",
    "depends", "template", "arguments", "volumes", "inputs", "outputs", "daemon", "image", "imagePullPolicy",
    "workingDir", "command", "args", "env",
)  # fmt: skip
_LAST = ("templates", "spec", "workflowSpec")


def to_yaml(manifest: dict[str, Any]) -> str:
    return yaml.dump(_ordered(manifest), Dumper=_Dumper, sort_keys=False, width=1 << 30, allow_unicode=True)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=_rank)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def _rank(key: str) -> tuple[int, str]:
    if key in _FIRST:
        return _FIRST.index(key), ""
    return (len(_FIRST) + (key in _LAST), key)


class _Dumper(Dumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
