"""What an engine is told about the machine it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MAX_PODS = 110  # at once, as a kubelet allows on one node


@dataclass(frozen=True)
class EngineSettings:
    """All of it may be left out.

    `images` maps an image to what it holds, path in the container -> host path; "*" stands for every
    image that is not named (without it an image that is not named holds the machine's own files).
    `claims` maps the name of a persistent volume claim to a host directory. `cpu` (cores), `memory`
    (bytes) and `gpus` bound what pods may request together; None is what the machine has. Containers
    get `environment`, and of the engine's own the variables named in `inherit`: names alone are stored.
    """

    images: dict[str, dict[str, str]] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    cpu: float | None = None
    memory: int | None = None
    gpus: int | None = None
    isolation: Literal["auto", "bubblewrap", "paths"] = "auto"
    environment: dict[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    max_pods: int = MAX_PODS
    known_images_only: bool = False
    namespace: str = "default"
