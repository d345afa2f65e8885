"""The volumes of a pod as directories of this machine: claims, directories of the pod, and files made of objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.engine.run.errors import TemplateError
from posttrain.engine.run.podfields import PodFields, looked_up
from posttrain.engine.templates import FlatScope, SubstitutionError, substitute

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

JSON = dict[str, Any]


def pod_volumes(
    run: Controller, template: JSON, containers: list[JSON], directory: Path, fields: PodFields
) -> dict[str, str]:
    """Host directories of the volumes that the containers mount. A mount of a volume nobody defines is an error."""
    defined = {one["name"]: one for one in [*_volumes_of(run), *(template.get("volumes") or [])]}
    mounted = [mount["name"] for one in containers for mount in one.get("volumeMounts") or []]
    found: dict[str, str] = {}
    for name in dict.fromkeys(mounted):
        if name not in defined:
            raise TemplateError(f"volume '{name}' not found in workflow spec")
        found[name] = str(_volume(run, defined[name], directory / "volumes" / name, fields))
    return found


def _volume(run: Controller, volume: JSON, place: Path, fields: PodFields) -> Path:
    if volume.get("persistentVolumeClaim"):
        return _claim_directory(run, volume["persistentVolumeClaim"]["claimName"])
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


def _claim_directory(run: Controller, name: str) -> Path:
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


def _projected(run: Controller, volume: JSON, fields: PodFields) -> list[tuple[str, str, int]]:
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


def _files(run: Controller, kind: str, source: JSON, mode: int, fields: PodFields) -> list[tuple[str, str, int]]:
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
    return [(one["path"], looked_up(find, {"name": name, "key": one["key"]}), one.get("mode", mode)) for one in items]


def _volumes_of(run: Controller) -> list[JSON]:
    """The workflow's volumes, with those of its claim templates, and global tags substituted."""
    names = [one["metadata"]["name"] for one in run.spec.get("volumeClaimTemplates") or []]
    claims = [{"name": one, "persistentVolumeClaim": {"claimName": f"{run.state.name}-{one}"}} for one in names]
    try:
        return substitute([*(run.spec.get("volumes") or []), *claims], FlatScope(run.globals))
    except SubstitutionError as error:
        raise TemplateError(str(error)) from None
