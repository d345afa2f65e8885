"""What a pod leaves: output parameters from files, output artifacts, in Argo's form."""

from __future__ import annotations

import os
from typing import Any

from posttrain.engine import artifacts
from posttrain.engine.logs import without_newline
from posttrain.engine.paths import Layout, clean
from posttrain.engine.podspec import PodSpec

JSON = dict[str, Any]


def collect(spec: PodSpec, layout: Layout) -> tuple[JSON, str]:
    """The outputs that are there, and what was wrong with the first that is not ("" where nothing).

    Parameters after a missing one are left out, as the controller does; artifacts are each tried.
    """
    outputs: JSON = {}
    parameters, problem = _parameters(spec, layout)
    if parameters:
        outputs["parameters"] = parameters
    saved: list[JSON] = []
    for artifact in spec.outputs.get("artifacts") or []:
        if not artifact.get("path"):
            continue  # `from` another node's: the engine's core fills it in
        try:
            kept = _save(spec, layout, artifact)
        except (OSError, artifacts.ArtifactError) as trouble:
            problem = problem or f"artifact {artifact['name']} failed to save: {_reason(trouble)}"
            continue
        if kept is not None:
            saved.append(kept)
    if saved:
        outputs["artifacts"] = saved
    return outputs, problem


def _parameters(spec: PodSpec, layout: Layout) -> tuple[list[JSON], str]:
    found: list[JSON] = []
    for parameter in spec.outputs.get("parameters") or []:
        source = parameter.get("valueFrom") or {}
        path = source.get("path")
        if not path:
            continue
        try:
            with open(layout.find(clean(path)), "rb") as file:
                value = without_newline(file.read())
        except OSError as trouble:
            if source.get("default") is None:
                return found, f"output parameter {parameter['name']}: open {path}: {_reason(trouble)}"
            value = str(source["default"])
        found.append({"name": parameter["name"], "value": value})
    return found, ""


def _save(spec: PodSpec, layout: Layout, artifact: JSON) -> JSON | None:
    source = layout.find(clean(artifact["path"]))
    if not os.path.lexists(source):
        if artifact.get("optional"):
            return None
        raise artifacts.ArtifactError(f"open {artifact['path']}: no such file or directory")
    return artifacts.save(source, artifact, store=spec.store, prefix=spec.artifact_prefix)


def _reason(trouble: Exception) -> str:
    if isinstance(trouble, FileNotFoundError):
        return "no such file or directory"
    return trouble.strerror or str(trouble) if isinstance(trouble, OSError) else str(trouble)
