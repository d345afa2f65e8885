"""From a template, with every tag substituted, to a PodSpec."""

from __future__ import annotations

import hashlib
import shutil
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions.dates import duration
from posttrain.engine.nodes import Node, pod_name
from posttrain.engine.podspec import PodSpec
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.run.podfields import PodFields, looked_up
from posttrain.engine.run.podvolumes import pod_volumes

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]


def pod_spec(
    run: Controller, node: Node, template: JSON, *, capture: bool, deadline: float | None, on_exit: bool
) -> PodSpec:
    """The pod for a node. Raises TemplateError with the controller's words where there can be none."""
    name = pod_name(run.state.name, node["id"], template.get("name", ""))
    seconds = _deadline(run, node, template, deadline, on_exit)
    directory = run.store.pods / node["id"]
    ip = _address_of(f"{run.state.workflow['metadata']['uid']}/{node['id']}")
    fields = PodFields(run, node, name, ip, template)
    script = template.get("script")
    main = {**{k: v for k, v in (script or template["container"]).items() if k != "source"}, "name": "main"}
    init = [_mirrored(one, main) for one in template.get("initContainers") or []]
    sidecars = [_mirrored(one, main) for one in template.get("sidecars") or []]
    containers = [main, *init, *sidecars]
    _check(name, init, [main, *sidecars])
    volumes = pod_volumes(run, template, containers, directory, fields)
    for container in containers:
        container["env"] = fields.environment(container)
        container.pop("envFrom", None)
    return PodSpec(
        id=node["id"],
        name=name,
        directory=str(directory),
        ip=ip,
        main=main,
        init=init,
        sidecars=sidecars,
        volumes=volumes,
        image_roots=_image_roots(run, containers),
        source=script.get("source") or None if script else None,
        inputs=[_input(run, one) for one in (template.get("inputs") or {}).get("artifacts") or [] if _present(one)],
        outputs=_outputs(run, template.get("outputs") or {}),
        capture_result=capture,
        daemon=bool(template.get("daemon")),
        deadline_seconds=seconds,
        store=str(run.artifacts),
        artifact_prefix=f"{run.state.name}/{name}",
        environment=dict(run.settings.environment),
        inherit=list(run.settings.inherit),
    )


def _address_of(key: str) -> str:
    """A loopback address of the pod's own, the same whenever it is asked for."""
    first, second, third = hashlib.sha256(key.encode()).digest()[:3]
    return f"127.{16 + first % 224}.{second}.{1 + third % 254}"


def _deadline(run: Controller, node: Node, template: JSON, deadline: float | None, on_exit: bool) -> float | None:
    """Seconds the pod may take: the least of the workflow's deadline, the template's and that of its retries."""
    state = run.state
    now, limits = state.clock(), []
    if template.get("timeout"):
        try:
            ends = state.start_of(node) + duration(template["timeout"])
        except ValueError as error:
            raise TemplateError(f"invalid timeout format. {error}") from None
        deadline = ends if deadline is None else min(ends, deadline)
    if deadline is not None:
        if int(deadline - now) <= 1:
            raise TemplateError(f"{node['name']} exceeded its deadline")
        limits.append(float(int(deadline - now)))
    if template.get("activeDeadlineSeconds") is not None:
        limits.append(float(int(template["activeDeadlineSeconds"])))
    return min(limits) if limits else None


def _check(pod: str, init: list[JSON], beside: list[JSON]) -> None:
    """What Kubernetes would refuse of the pod: containers without a name or command, or two of one name.

    Places are counted with the containers that Argo adds: its own before the user's, one of each kind.
    """
    taken = {"init", "wait"}
    for field, containers in (("initContainers", init), ("containers", beside)):
        for place, container in enumerate(containers, 1):
            name, where = container.get("name") or "", f'Pod "{pod}" is invalid: spec.{field}[{place}].name'
            if not name:
                raise TemplateError(f"{where}: Required value")
            if name in taken:
                raise TemplateError(f'{where}: Duplicate value: "{name}"')
            taken.add(name)
            if field == "containers" and not container.get("command"):
                raise TemplateError(
                    f'failed to look-up entrypoint/cmd for image "{container.get("image", "")}", you must either '
                    f"explicitly specify the command, or list the image's command in the index: {name}.command"
                )


def _mirrored(container: JSON, main: JSON) -> JSON:
    """A user's container, with main's mounts where it asks to mirror them."""
    container = deepcopy(container)
    if container.pop("mirrorVolumeMounts", False):
        own = container.get("volumeMounts") or []
        paths = {one["mountPath"] for one in own}
        container["volumeMounts"] = [
            *own,
            *(one for one in main.get("volumeMounts") or [] if one["mountPath"] not in paths),
        ]
    return container


def _present(artifact: JSON) -> bool:
    return any(artifact.get(key) for key in ("raw", "s3"))


def _image_roots(run: Controller, containers: list[JSON]) -> dict[str, dict[str, str]]:
    images = run.settings.images
    found: dict[str, dict[str, str]] = {}
    for image in {one.get("image", "") for one in containers}:
        roots = images.get(image, images.get("*"))
        if roots is None and run.settings.known_images_only:
            raise TemplateError(
                f"image {image!r} stands for nothing on this machine; map it in the settings of the engine"
            )
        for place in (roots or {}).values():
            if not Path(place).exists():
                raise TemplateError(f"image {image!r} stands for {place}, which is not there: install or map it anew")
        if roots:
            found[image] = dict(roots)
    return found


# -- artifacts


def _input(run: Controller, artifact: JSON) -> JSON:
    artifact = deepcopy(artifact)
    _locate(run, artifact)
    return artifact


def _outputs(run: Controller, outputs: JSON) -> JSON:
    outputs = deepcopy(outputs)
    for artifact in outputs.get("artifacts") or []:
        _locate(run, artifact)
    return outputs


def _locate(run: Controller, artifact: JSON) -> None:
    """A bucket's secrets read, beside where they were read from, which the outputs then say to whoever takes the
    artifact over."""
    location = artifact.get("s3") or {}
    if not location.get("bucket"):
        return
    found: JSON = {}
    for selector, field in (
        ("accessKeySecret", "accessKey"),
        ("secretKeySecret", "secretKey"),
        ("sessionTokenSecret", "sessionToken"),
    ):
        if location.get(selector):
            found[field] = looked_up(run.objects.secret_value, location[selector])
    artifact["s3"] = location | found


def clear(directory: Path) -> None:
    """Put a pod's old directory out of the way of a new pod of the same node; its logs are kept."""
    if directory.exists():
        number = 1
        while (old := directory.with_name(f"{directory.name}.{number}")).exists():
            number += 1
        directory.rename(old)
        for part in ("root", "volumes"):
            shutil.rmtree(old / part, ignore_errors=True)
