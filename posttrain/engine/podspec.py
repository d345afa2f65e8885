"""What the engine asks of a pod, and what the pod answers: plain data, both JSON on disk.

The engine's core (graph, templates, loop) resolves a template into a `PodSpec`; `pods.py` carries
it out in a supervisor process of its own and keeps `PodStatus` up to date in the pod's directory.
The supervisor outlives the engine: an engine that was killed finds its pods by their directories
and goes on from their status, so a step that was running is neither lost nor run twice.

    <run>/pods/<id>/pod.json      the PodSpec, written before the supervisor starts
    <run>/pods/<id>/status.json   the PodStatus, replaced atomically at every change
    <run>/pods/<id>/logs/NAME     stdout and stderr of each container, combined, as they come

Containers, probes and outputs keep Kubernetes' and Argo's own field names (camelCase dicts), with
every substitution of `{{…}}` and every `valueFrom` already made. What the kubelet does is done by the
pod: `$(NAME)` in command, args and env, `$$`, named ports, the defaults of probes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]


@dataclass(frozen=True)
class PodSpec:
    """`ip` is a loopback address of the pod's own. `main` is the container that decides.

    `volumes` maps a volume's name to a host directory that exists (a claim, an emptyDir, a
    projected config map or secret); those below `<directory>/volumes` are removed when the pod has
    ended. `inputs` are Argo artifacts with `path` and a location (`raw`, or `s3`, without a bucket in the
    engine's own store); `outputs` is the template's `outputs` object. `source` is a script template's
    source. `image_roots` says which host directories stand for what an image holds:
    image -> {path in the container: host path}.
    """

    id: str
    name: str
    directory: str
    ip: str
    main: JSON
    init: list[JSON] = field(default_factory=list)
    sidecars: list[JSON] = field(default_factory=list)
    volumes: dict[str, str] = field(default_factory=dict)
    image_roots: dict[str, dict[str, str]] = field(default_factory=dict)
    source: str | None = None
    inputs: list[JSON] = field(default_factory=list)
    outputs: JSON = field(default_factory=dict)
    capture_result: bool = False
    daemon: bool = False
    deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    store: str | None = None  # directory of the engine's own artifact store
    artifact_prefix: str = ""  # key prefix of this pod's output artifacts in the default store
    environment: dict[str, str] = field(default_factory=dict)  # what every container of the pod gets
    inherit: list[str] = field(default_factory=list)  # and what of the engine's own, by name: values may be secrets
    memory_limits: dict[str, int] = field(default_factory=dict)  # container -> bytes; filled in by `PodRunner.start`


@dataclass(frozen=True)
class PodStatus:
    """`phase`: Pending, Running, Succeeded, Failed or Error (Error: what surrounds main failed).

    `ready` is true once every container runs and its readiness probe, if any, succeeded.
    `outputs` has Argo's form: `parameters` [{name, value}], `artifacts`, `result`, `exitCode`.
    `containers` maps a container's name to {state: waiting|running|terminated, exitCode, reason, pid}.
    """

    phase: str = "Pending"
    message: str = ""
    ready: bool = False
    started: float | None = None
    finished: float | None = None
    outputs: JSON = field(default_factory=dict)
    containers: dict[str, JSON] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Error")
