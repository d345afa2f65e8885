"""From a template, with every tag substituted, to a PodSpec: volumes, environment, artifacts, deadlines."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions.dates import duration
from posttrain.engine.nodes import Node, pod_name
from posttrain.engine.podspec import PodSpec
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.templates import FlatScope, SubstitutionError, substitute
from posttrain.units import quantity

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]


def pod_spec(
    run: Controller, node: Node, template: JSON, *, capture: bool, deadline: float | None, on_exit: bool
) -> PodSpec:
    """The pod for a node. Raises TemplateError with the controller's words where there can be none."""
    name = pod_name(run.state.name, node["name"], template.get("name", ""))
    seconds = _deadline(run, node, template, deadline, on_exit)
    directory = run.store.pods / node["id"]
    fields = _Fields(run, node, name, template)
    script = template.get("script")
    main = {**{k: v for k, v in (script or template["container"]).items() if k != "source"}, "name": "main"}
    init = [_mirrored(one, main) for one in template.get("initContainers") or []]
    sidecars = [_mirrored(one, main) for one in template.get("sidecars") or []]
    containers = [main, *init, *sidecars]
    volumes = _volumes(run, template, containers, directory, fields)
    for container in containers:
        container["env"] = fields.environment(container)
        container.pop("envFrom", None)
    return PodSpec(
        id=node["id"],
        name=name,
        directory=str(directory),
        ip=address_of(f"{run.state.workflow['metadata']['uid']}/{node['id']}"),
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


def address_of(key: str) -> str:
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
    return any(artifact.get(key) for key in ("raw", "s3", "store"))


def _image_roots(run: Controller, containers: list[JSON]) -> dict[str, dict[str, str]]:
    images = run.settings.images
    found: dict[str, dict[str, str]] = {}
    for image in {one.get("image", "") for one in containers}:
        roots = images.get(image, images.get("*"))
        if roots is None and run.settings.known_images_only:
            raise TemplateError(
                f"image {image!r} stands for nothing on this machine; map it in the settings of the engine"
            )
        if roots:
            found[image] = dict(roots)
    return found


# -- artifacts


def _input(run: Controller, artifact: JSON) -> JSON:
    artifact = deepcopy(artifact)
    if artifact.get("s3") is not None:
        _locate(run, artifact)
    return artifact


def _outputs(run: Controller, outputs: JSON) -> JSON:
    outputs = deepcopy(outputs)
    for artifact in outputs.get("artifacts") or []:
        if artifact.get("s3") is not None:
            _locate(run, artifact)
    return outputs


def _locate(run: Controller, artifact: JSON) -> None:
    """An S3 location with its secrets read; one that gives a key alone lies in the engine's own store."""
    location = artifact.pop("s3")
    if not location.get("bucket"):
        artifact["store"] = location.get("key", "")
        return
    kept = {
        key: location[key]
        for key in ("bucket", "key", "endpoint", "insecure", "region")
        if location.get(key) is not None
    }
    for selector, field in (
        ("accessKeySecret", "accessKey"),
        ("secretKeySecret", "secretKey"),
        ("sessionTokenSecret", "sessionToken"),
    ):
        if location.get(selector):
            kept[field] = _looked_up(run.objects.secret_value, location[selector])
    artifact["s3"] = kept


def _looked_up(find: Callable[[str, str], str], selector: JSON) -> str:
    try:
        return find(selector.get("name", ""), selector.get("key", ""))
    except LookupError as error:
        raise TemplateError(error.args[0]) from None


# -- environment


class _Fields:
    """What a pod knows of itself (the downward API), and the environment of its containers."""

    def __init__(self, run: Controller, node: Node, name: str, template: JSON):
        self.run, self.name = run, name
        metadata = template.get("metadata") or {}
        own = run.spec.get("podMetadata") or {}
        base = {"workflows.argoproj.io/workflow": run.state.name, "workflows.argoproj.io/completed": "false"}
        self.labels = {**base, **(metadata.get("labels") or {}), **(own.get("labels") or {})}
        noted = {"workflows.argoproj.io/node-name": node["name"], "workflows.argoproj.io/node-id": node["id"]}
        self.annotations = {**noted, **(metadata.get("annotations") or {}), **(own.get("annotations") or {})}
        self.service_account = template.get("serviceAccountName") or run.spec.get("serviceAccountName") or "default"
        self.ip = address_of(f"{run.state.workflow['metadata']['uid']}/{node['id']}")

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


# -- volumes


def _volumes(
    run: Controller, template: JSON, containers: list[JSON], directory: Path, fields: _Fields
) -> dict[str, str]:
    """Host directories of the volumes that the containers mount. A mount of a volume nobody defines is an error."""
    defined = {one["name"]: one for one in [*run.volumes(), *(template.get("volumes") or [])]}
    mounted = [mount["name"] for one in containers for mount in one.get("volumeMounts") or []]
    found: dict[str, str] = {}
    for name in dict.fromkeys(mounted):
        if name not in defined:
            raise TemplateError(f"volume '{name}' not found in workflow spec")
        found[name] = str(_volume(run, defined[name], directory / "volumes" / name, fields))
    return found


def _volume(run: Controller, volume: JSON, place: Path, fields: _Fields) -> Path:
    if volume.get("persistentVolumeClaim"):
        return claim_directory(run, volume["persistentVolumeClaim"]["claimName"])
    if volume.get("hostPath"):
        return _host_path(volume)
    place.mkdir(parents=True, exist_ok=True)
    os.chmod(place, 0o777)
    if volume.get("emptyDir") is not None or volume.get("ephemeral") is not None:
        return place
    for path, text, mode in _projected(run, volume, fields):
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)
    return place


def _host_path(volume: JSON) -> Path:
    source = volume["hostPath"]
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if kind == "FileOrCreate" and not path.exists():
        path.touch()
    if not path.exists():
        raise TemplateError(f"hostPath {path} of volume '{volume['name']}' is not there")
    return path


def claim_directory(run: Controller, name: str) -> Path:
    """The directory of a claim: as the settings say, or one of the workflow's own claims, or of the manifest's."""
    if name in run.settings.claims:
        return Path(run.settings.claims[name])
    own = [f"{run.state.name}-{one['metadata']['name']}" for one in run.spec.get("volumeClaimTemplates") or []]
    if name in own:
        place = run.store.directory / "claims" / name
    elif name in run.objects.claims:
        place = run.workspace / "claims" / name
    else:
        raise TemplateError(
            f'persistentvolumeclaim "{name}" not found: map it to a directory in the settings of the engine'
        )
    place.mkdir(parents=True, exist_ok=True)
    return place


def _projected(run: Controller, volume: JSON, fields: _Fields) -> list[tuple[str, str, int]]:
    """(path, text, mode) of every file of a volume that is made of config maps, secrets and pod fields."""
    kinds = ("configMap", "secret", "downwardAPI", "projected")
    kind = next((one for one in kinds if volume.get(one) is not None), None)
    if kind is None:
        raise TemplateError(f"volume '{volume['name']}' is of a kind that this engine does not carry: run it on Argo")
    source = volume[kind]
    if kind != "projected":
        return _files(run, kind, source, source.get("defaultMode", 0o644), fields)
    mode = source.get("defaultMode", 0o644)
    return [
        file for part in source.get("sources") or [] for one in kinds[:3] if part.get(one)
        for file in _files(run, one, part[one], mode, fields)
    ]  # fmt: skip


def _files(run: Controller, kind: str, source: JSON, mode: int, fields: _Fields) -> list[tuple[str, str, int]]:
    if kind == "downwardAPI":
        listed = source.get("items") or []
        return [
            (one["path"], fields.field(one["fieldRef"]["fieldPath"]), one.get("mode", mode))
            for one in listed
            if one.get("fieldRef")
        ]
    objects = run.objects
    table = objects.config_maps if kind == "configMap" else objects.secrets
    find = objects.config_value if kind == "configMap" else objects.secret_value
    name = source.get("name") or source.get("secretName") or ""
    if name not in table:
        if source.get("optional"):
            return []
        raise TemplateError(f'{"configmap" if kind == "configMap" else "secret"} "{name}" not found')
    keys = [*(table[name].get("data") or {}), *(table[name].get("stringData") or {})]
    items = source.get("items") or [{"key": key, "path": key} for key in keys]
    return [(one["path"], _looked_up(find, {"name": name, "key": one["key"]}), one.get("mode", mode)) for one in items]


def volumes_of(spec: JSON, workflow: str, globals: Mapping[str, str]) -> list[JSON]:
    """The workflow's volumes, with those of its claim templates, and global tags substituted."""
    claims = [
        {
            "name": one["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{workflow}-{one['metadata']['name']}"},
        }
        for one in spec.get("volumeClaimTemplates") or []
    ]
    try:
        return substitute([*(spec.get("volumes") or []), *claims], FlatScope(globals))
    except SubstitutionError as error:
        raise TemplateError(str(error)) from None


def clear(directory: Path) -> None:
    """Put a pod's old directory out of the way of a new pod of the same node; its logs are kept."""
    if directory.exists():
        number = 1
        while (old := directory.with_name(f"{directory.name}.{number}")).exists():
            number += 1
        directory.rename(old)
        for part in ("root", "volumes"):
            shutil.rmtree(old / part, ignore_errors=True)
