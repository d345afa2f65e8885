"""A profile: where a workflow runs. Resources, images, volumes, nodes, retries; nothing of what it computes.

Invariant: two renderings of one route that differ in the profile alone compute the same thing. A
profile is a YAML file under `workflows/profiles/`, or any other whose path is given; `Profile` is
its schema, so that an unknown key fails before anything is started. One that says `extends: NAME`
is laid over that one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posttrain.contract import StepSpec
from posttrain.contract.config import load_yaml, resolve
from posttrain.errors import UserError

DIRECTORY = Path(__file__).parent / "profiles"
EXTENDS = "extends"

# What Kubernetes and Hera both take, and how to write it. Longer forms are Kubernetes' own and Hera refuses them.
_CPU = (re.compile(r"\d+(\.\d+)?m?"), "is no number of cores", "write it as 2, 0.5 or 500m")
_MEMORY = (re.compile(r"\d+(\.\d+)?[KMGTPE]i"), "is no size", "write it as 512Mi or 16Gi")


@dataclass
class Toleration:
    """A taint that a pod tolerates, in Kubernetes' own words."""

    key: str | None = None
    operator: str = "Exists"
    value: str | None = None
    effect: str | None = None


@dataclass
class Volume:
    """What is mounted at `mount_path`: a `claim`, a `host_path`, or `memory` of that size (a tmpfs)."""

    mount_path: str
    claim: str | None = None
    host_path: str | None = None
    memory: str | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("claim", "host_path", "memory") if getattr(self, name)]
        if len(given) != 1:
            raise UserError(
                "needs exactly one of claim, host_path and memory",
                field=f"profile.volumes (the one at {self.mount_path})",
                value=given,
            )


@dataclass
class StepSettings:
    """What a profile says of one step. None leaves what the step's own spec says."""

    cpu: str | None = None
    memory: str | None = None
    gpu: int | None = None
    retries: int | None = None
    deadline_seconds: int | None = None
    priority_class: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Backoff:
    """How long to wait before an attempt: `seconds`, times `factor` each time, `cap_seconds` at most."""

    seconds: int = 10
    factor: int = 2
    cap_seconds: int = 300


@dataclass
class Profile:
    """`environments` maps the environment a spec names to the one that runs here; `images` the
    environment to an image, with `default` for the others; `defaults` holds for every step. The
    environments in `install` are installed by the workflow itself, before its first step: its tasks
    may write the volume at POSTTRAIN_ENVS, which may be read-only for every other. `restricted`
    keeps the steps to Kubernetes' pod security standard of that name."""

    summary: str = ""
    project: str = "/opt/posttrain"
    workspace: str = "/workspace"
    environments: dict[str, str] = field(default_factory=dict)
    install: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    image_pull_policy: str | None = None
    service_account: str | None = None
    run_as_user: int | None = None
    fs_group: int | None = None  # group that may write the volumes
    restricted: bool = False
    volumes: dict[str, Volume] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=Backoff)
    defaults: StepSettings = field(default_factory=StepSettings)
    steps: dict[str, StepSettings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least(0, "profile.backoff", self.backoff, "seconds", "cap_seconds")
        _at_least(1, "profile.backoff", self.backoff, "factor")
        groups = {"defaults": self.defaults} | {f"steps.{name}": settings for name, settings in self.steps.items()}
        for name, settings in groups.items():
            where = f"profile.{name}"
            _of_form(_CPU, f"{where}.cpu", settings.cpu)
            _of_form(_MEMORY, f"{where}.memory", settings.memory)
            _at_least(0, where, settings, "gpu", "retries")
            _at_least(1, where, settings, "deadline_seconds")
        for name, volume in self.volumes.items():
            _of_form(_MEMORY, f"profile.volumes.{name}.memory", volume.memory)

    def environment(self, spec: StepSpec) -> str:
        return self.environments.get(spec.environment, spec.environment)

    def image(self, environment: str) -> str:
        for key in (environment, "default"):
            if key in self.images:
                return self.images[key]
        raise UserError("names no image", field=f"profile.images.{environment}", remedy="give it, or `default`")

    def settings(self, spec: StepSpec) -> StepSettings:
        """The settings of one step: the spec's, then the profile's defaults, then its own."""
        found = StepSettings(
            cpu=spec.resources.cpu,
            memory=spec.resources.memory,
            gpu=spec.resources.gpu,
            retries=spec.retries,
            deadline_seconds=spec.deadline_seconds,
        )
        for layer in (self.defaults, self.steps.get(spec.name, StepSettings())):
            given = {k: v for k, v in vars(layer).items() if v is not None and k != "env"}
            found = replace(found, **given, env=found.env | layer.env)
        return found


def load_profile(name: str, *layers: dict[str, Any], overrides: tuple[str, ...] = ()) -> Profile:
    """The profile called `name`, or the one in the file of that path, under `layers` and `a.b=c` overrides."""
    return resolve(Profile, *_files(name), *layers, overrides=overrides, where="profile")


def _files(name: str, directory: Path = Path(), above: tuple[Path, ...] = ()) -> list[dict[str, Any]]:
    """What the profile `name` extends, and then its own file. A path is relative to `directory`."""
    path = directory / name if name.endswith((".yaml", ".yml")) else DIRECTORY / f"{name}.yaml"
    if not path.is_file():
        raise UserError(
            "no such profile",
            field=f"{above[-1]}: extends" if above else "--profile",
            value=name,
            remedy=f"known: {', '.join(profile_names())}; or give the path of a YAML file",
        )
    if path in above:
        raise UserError("leads back to itself", field=f"{above[-1]}: extends", value=name)
    own = load_yaml(path, field="--profile")
    base = own.pop(EXTENDS, None)
    return [*(_files(str(base), path.parent, (*above, path)) if base else []), own]


def profile_names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def _at_least(least: int, where: str, group: object, *names: str) -> None:
    for name in names:
        value = getattr(group, name)
        if value is not None and value < least:
            raise UserError(f"must be at least {least}", field=f"{where}.{name}", value=value)


def _of_form(form: tuple[re.Pattern[str], str, str], where: str, text: str | None) -> None:
    pattern, problem, remedy = form
    if text is not None and not pattern.fullmatch(text):
        raise UserError(problem, field=where, value=text, remedy=remedy)
