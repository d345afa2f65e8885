"""From a container's declaration to a process: what the kubelet does between the two. Pure, but for
the variables that a pod inherits by name.

`$(NAME)` in command, args and env is replaced by the container's own variables, `$$` gives `$`; what
names no variable stays as it is. An environment variable may use those written before it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from posttrain.engine.isolation import Process
from posttrain.engine.paths import SCRIPT, TERMINATION_LOG, Layout, Mount, clean
from posttrain.engine.podspec import PodSpec
from posttrain.errors import UserError
from posttrain.isolation.bubblewrap import PATH
from posttrain.isolation.processes import MARKER

JSON = dict[str, Any]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with `$(NAME)` replaced and `$$` halved, by the kubelet's rules."""
    out, at = [], 0
    while at < len(text):
        character = text[at]
        following = text[at + 1 : at + 2]
        close = text.find(")", at) if following == "(" else -1
        if character == "$" and following == "$":
            out.append("$")
            at += 2
        elif character == "$" and close > 0:
            name = text[at + 2 : close]
            out.append(variables.get(name, text[at : close + 1]))
            at = close + 1
        else:
            out.append(character)
            at += 1
    return "".join(out)


def root_of(spec: PodSpec, container: str) -> str:
    """The directory of the files that a container has for itself."""
    return f"{spec.directory}/root/{container}"


def termination_log_of(spec: PodSpec, container: str) -> str:
    """Where a container may leave a last word, which becomes part of the node's message."""
    return f"{spec.directory}/root/{container}.termination"


def layout_of(spec: PodSpec, container: JSON) -> Layout:
    """The paths of a container: its image's roots, its volume mounts and what only main declares."""
    mounts = [Mount(clean(p), host, True) for p, host in spec.image_roots.get(container.get("image", ""), {}).items()]
    for number, mount in enumerate(container.get("volumeMounts") or []):
        host = spec.volumes.get(mount["name"])
        if host is None:
            raise UserError(
                "no such volume", field=f"{container['name']}.volumeMounts[{number}].name", value=mount["name"]
            )
        inner = clean(mount.get("subPath") or "").rstrip("/")
        mounts.append(Mount(clean(mount["mountPath"]), host.rstrip("/") + inner, bool(mount.get("readOnly"))))
    mounts.append(Mount(TERMINATION_LOG, termination_log_of(spec, container["name"])))
    return Layout(
        root_of(spec, container["name"]), tuple(mounts), declared_paths(spec) if is_main(spec, container) else ()
    )


def declared_paths(spec: PodSpec) -> tuple[str, ...]:
    """The container paths of input artifacts, output artifacts and output parameters."""
    artifacts = [*spec.inputs, *(spec.outputs.get("artifacts") or [])]
    files = [p.get("valueFrom", {}).get("path") for p in spec.outputs.get("parameters") or []]
    return tuple(clean(path) for path in [*(a.get("path") for a in artifacts), *files] if path)


def process_of(spec: PodSpec, container: JSON, layout: Layout, command: list[str] | None = None) -> Process:
    """The container's process, or with `command` one beside it (a probe, a hook)."""
    name = container["name"]
    variables: dict[str, str] = {}
    for item in container.get("env") or []:
        variables[item["name"]] = expand(item.get("value") or "", variables)
    argv = command
    if argv is None:
        argv = [expand(text, variables) for text in [*(container.get("command") or []), *(container.get("args") or [])]]
        if spec.source is not None and is_main(spec, container):
            argv.append(SCRIPT)
        if not container.get("command"):
            raise UserError("is missing", field=f"{name}.command", remedy="an image's own entrypoint is not known here")
    base = {"PATH": PATH, "HOME": "/tmp", "POD_IP": spec.ip, "POD_NAME": spec.name}
    inherited = {name: os.environ[name] for name in spec.inherit if name in os.environ}
    marker = {MARKER: f"{spec.directory}/{name}"}
    working = clean(container.get("workingDir") or "/")
    return Process(argv, {**base, **inherited, **spec.environment, **variables, **marker}, working, layout)


def is_main(spec: PodSpec, container: JSON) -> bool:
    return container["name"] == spec.main["name"]
