"""The Argo template of a step, generated from its spec.

Invariant: nothing about a step is written twice. Inputs, outputs, environment, port and deadline
come from the `StepSpec` that the step's own process reads, so a definition cannot drift from the
code that it runs; where it runs comes from the profile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from hera.workflows import Container, Env, FieldEnv, Parameter, Resources, RetryStrategy, UserContainer
from hera.workflows.models import (
    Backoff,
    Capabilities,
    ContainerPort,
    HTTPGetAction,
    IntOrString,
    Probe,
    SecurityContext,
    Toleration,
    ValueFrom,
    VolumeMount,
)

from posttrain.contract import StepSpec
from workflows.profile import Profile

OUTPUTS = "/tmp/outputs"
ENVIRONMENTS = "POSTTRAIN_ENVS"  # the variable that names where the environments lie

# A step leaves with 2 when its user has to change something: trying again would fail again.
RETRY_UNLESS_USER_ERROR = "asInt(lastRetry.exitCode) != 2"


def argo_name(name: str) -> str:
    """`prepare_data` as Argo and Kubernetes want it: `prepare-data`."""
    return name.replace("_", "-")


def config_of(step: str) -> str:
    """The step's section of the configuration, which is a parameter of the workflow."""
    return f"{{{{workflow.parameters.{argo_name(step)}-config}}}}"


def step_arguments(spec: StepSpec, step: str, inputs: Mapping[str, str]) -> dict[str, str]:
    """What the template of `spec` is given to run as `step`. An input that it lacks or does not know fails at once."""
    known = {f.name: f.default for f in fields(spec.Inputs)}
    unknown = sorted(set(inputs) - set(known))
    lacking = [name for name, default in known.items() if name not in inputs and default is MISSING]
    assert not unknown, f"step {spec.name} has no input {unknown[0]}; known: {', '.join(known) or 'none'}"
    assert not lacking, f"step {spec.name} lacks its input {lacking[0]}"
    given = {name: inputs[name] if name in inputs else plain(default) for name, default in known.items()}
    return {"step": step, "config": config_of(spec.name)} | given


def plain(value: Any) -> str:
    """As a parameter's text."""
    return value if isinstance(value, str) else json.dumps(value)


def step_template(
    spec: StepSpec, profile: Profile, *, port: int | None = None, sidecar: StepSpec | None = None
) -> Container:
    """The container template that runs `spec` where `profile` says. A service listens on `port`, or its spec's; a
    service that is its `sidecar` runs in the same pod, with its own section of the configuration."""
    settings = profile.settings(spec)
    port = port or spec.port
    service = spec.kind == "service"
    return Container(
        name=argo_name(spec.name),
        inputs=[Parameter(name=name) for name in ("step", "config", *(f.name for f in fields(spec.Inputs)))],
        outputs=[
            Parameter(name=f.name, value_from=ValueFrom(path=f"{OUTPUTS}/{f.name}")) for f in fields(spec.Outputs)
        ],
        labels=_labels(argo_name(spec.name), profile.environment(spec), profile),
        image=profile.image(profile.environment(spec)),
        image_pull_policy=profile.image_pull_policy,
        working_dir=profile.project,
        command=["envs/run", profile.environment(spec), "python", "-m", spec.package],
        args=_arguments(spec, profile),
        env=[
            *([FieldEnv(name="POD_IP", field_path="status.podIP")] if service or sidecar else []),
            *(Env(name=k, value=v) for k, v in (dict(spec.variables) | profile.env | settings.env).items()),
        ],
        resources=Resources(cpu_request=settings.cpu, memory_request=settings.memory, gpus=settings.gpu or None),
        volume_mounts=_mounts(profile),
        security_context=_security(profile),
        active_deadline_seconds=settings.deadline_seconds,
        retry_strategy=_retries(settings.retries, profile),
        priority_class_name=settings.priority_class,
        node_selector=settings.node_selector,
        tolerations=[Toleration(**vars(t)) for t in settings.tolerations or []] or None,
        daemon=True if service else None,
        ports=[ContainerPort(container_port=port, name="http")] if service and port else None,
        readiness_probe=_readiness(spec, port) if service and port else None,
        sidecars=[_sidecar(sidecar, profile)] if sidecar else None,
    )


def _sidecar(spec: StepSpec, profile: Profile) -> UserContainer:
    settings = profile.settings(spec)
    return UserContainer(
        name=argo_name(spec.name),
        image=profile.image(profile.environment(spec)),
        image_pull_policy=profile.image_pull_policy,
        working_dir=profile.project,
        command=["envs/run", profile.environment(spec), "python", "-m", spec.package],
        args=_arguments(spec, profile, step=f"{{{{inputs.parameters.step}}}}_{spec.name}", config=config_of(spec.name)),
        env=[
            FieldEnv(name="POD_IP", field_path="status.podIP"),
            *(Env(name=k, value=v) for k, v in (dict(spec.variables) | profile.env | settings.env).items()),
        ],
        resources=Resources(cpu_request=settings.cpu, memory_request=settings.memory),
        volume_mounts=_mounts(profile),
        security_context=_security(profile),
    )


def install_template(environment: str, profile: Profile) -> Container:
    """The container template that installs `environment` into the shared volume, where it is not there yet."""
    name = f"install-{environment}"
    return Container(
        name=name,
        labels=_labels(name, environment, profile),
        image=profile.image(environment),
        image_pull_policy=profile.image_pull_policy,
        working_dir=profile.project,
        command=["envs/install", environment],
        env=[Env(name=k, value=v) for k, v in profile.env.items()],
        resources=Resources(cpu_request="1", memory_request="2Gi"),
        volume_mounts=_mounts(profile, writable=profile.env.get(ENVIRONMENTS)),
        security_context=_security(profile),
        active_deadline_seconds=3600,
        retry_strategy=_retries(2, profile),
    )


def _labels(component: str, environment: str, profile: Profile) -> dict[str, str]:
    return {
        "app.kubernetes.io/part-of": "posttrain",
        "app.kubernetes.io/component": component,
        "posttrain/environment": environment,
    } | profile.labels


def _mounts(profile: Profile, writable: str | None = None) -> list[VolumeMount]:
    """Every volume of the profile; the one at `writable` can be written whatever the profile says."""
    return [
        VolumeMount(
            name=name,
            mount_path=volume.mount_path,
            read_only=(volume.read_only and volume.mount_path != writable) or None,
        )
        for name, volume in profile.volumes.items()
    ]


def _security(profile: Profile) -> SecurityContext | None:
    if not profile.restricted:
        return None
    return SecurityContext(allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"]))


def _retries(limit: int | None, profile: Profile) -> RetryStrategy:
    return RetryStrategy(
        limit=str(limit or 0),
        retry_policy="Always",
        expression=RETRY_UNLESS_USER_ERROR,
        backoff=Backoff(
            duration=str(profile.backoff.seconds),
            factor=IntOrString(root=profile.backoff.factor),
            cap=str(profile.backoff.cap_seconds),
        ),
    )


def _arguments(
    spec: StepSpec, profile: Profile, *, step: str = "{{inputs.parameters.step}}",
    config: str = "{{inputs.parameters.config}}",
) -> list[str]:  # fmt: skip
    arguments = [
        "--workspace", profile.workspace,
        "--run", "{{workflow.name}}",
        "--step", step,
        "--seed", "{{workflow.parameters.seed}}",
        "--config", config,
        "--outputs", OUTPUTS,
    ]  # fmt: skip
    for field in fields(spec.Inputs):
        arguments += ["--input", f"{field.name}={{{{inputs.parameters.{field.name}}}}}"]
    return arguments


def _readiness(spec: StepSpec, port: int) -> Probe:
    return Probe(
        http_get=HTTPGetAction(path=spec.ready, port=port),
        period_seconds=2,
        timeout_seconds=2,
        failure_threshold=900,
    )
