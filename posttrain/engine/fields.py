"""Every field of Argo's Workflow types, and what this engine makes of it: carried, ignored or refused.

The one table: `lint` refuses by it, the documentation prints it, and a test holds it against the
types (so that a field which a new version of Argo brings cannot go unseen). Types that can be
reached through ignored or refused fields alone need no entry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from posttrain.engine.manifest.strict import models

IGNORED, REFUSED, CARRIED = "ignored", "refused", "carried"

_PLACED = "one machine has nothing to choose a node among"
_IMAGES = "images stand for directories of this machine and are never pulled"
_ACCOUNT = "pods here have no account with an API server"
_NETWORK = "pods share this machine's network and names"
_KEPT = "what a run wrote stays until the run is deleted"
_NO_TTY = "steps read no terminal"
_SCHEDULER = "there is no scheduler beside the engine"

# What is ignored, with the reason. Where a field is called the same everywhere, `*` stands for the type.
_IGNORED: dict[str, dict[str, str]] = {
    "*": {
        "tolerations": _PLACED,
        "schedulerName": _SCHEDULER,
        "priorityClassName": _SCHEDULER,
        "podPriorityClassName": _SCHEDULER,
        "imagePullPolicy": _IMAGES,
        "imagePullSecrets": _IMAGES,
        "serviceAccountName": _ACCOUNT,
        "executor": _ACCOUNT,
        "dnsConfig": _NETWORK,
        "dnsPolicy": _NETWORK,
        "hostNetwork": _NETWORK,
        "stdin": _NO_TTY,
        "stdinOnce": _NO_TTY,
        "tty": _NO_TTY,
        "terminationMessagePath": "the exit code and the log say why a container ended",
        "terminationMessagePolicy": "the exit code and the log say why a container ended",
        "resizePolicy": "pods are not resized",
        "metrics": "there is no collector of metrics; the run's object and events hold the same",
        "description": "it is for people",
    },
    "WorkflowSpec": {
        "archiveLogs": "the logs of every pod stay with the run",
        "podDisruptionBudget": "nothing evicts pods here",
        "podGC": "a pod that has ended leaves no process behind; its log is kept",
        "volumeClaimGC": _KEPT,
        "artifactRepositoryRef": "artifacts without a location of their own lie in the run store",
    },
    "Artifact": {"archiveLogs": "the logs of every pod stay with the run"},
    "ArtifactGC": {"podMetadata": _KEPT, "serviceAccountName": _KEPT},
    "WorkflowLevelArtifactGC": {
        "podMetadata": _KEPT, "podSpecPatch": _KEPT, "serviceAccountName": _KEPT, "forceFinalizerRemoval": _KEPT,
    },
    "S3Artifact": {
        "createBucketIfNotPresent": "buckets are made by whoever owns the store",
        "useSDKCreds": "without keys the client of this machine finds its own",
    },
    "PersistentVolumeClaim": {
        "apiVersion": "a claim is a directory", "kind": "a claim is a directory", "status": "a claim is a directory",
        "spec": "a claim is a directory of the run, as large as the disk",
    },
    "EmptyDirVolumeSource": {"medium": "an emptyDir is a directory", "sizeLimit": "it is as large as the disk"},
    "EphemeralVolumeSource": {"volumeClaimTemplate": "an ephemeral volume is a directory of the pod"},
    "Mutex": {"namespace": "the run store is one namespace"},
    "SemaphoreRef": {"namespace": "the run store is one namespace"},
    "ObjectFieldSelector": {"apiVersion": "there is one version"},
    "VolumeMount": {"mountPropagation": "nothing is mounted later", "recursiveReadOnly": "readOnly is recursive"},
    "ContainerPort": {"hostIP": _NETWORK, "hostPort": _NETWORK, "protocol": _NETWORK},
    "RetryStrategy": {"affinity": _PLACED},
    "NodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _PLACED},
    "PodAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _PLACED},
    "PodAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _PLACED},
    "SecurityContext": {
        name: "a step runs with the rights of whoever runs the engine, and no more"
        for name in ("allowPrivilegeEscalation", "appArmorProfile", "procMount", "seLinuxOptions", "seccompProfile",
                     "windowsOptions")
    },
    "PodSecurityContext": {
        name: "a step runs with the rights of whoever runs the engine, and no more"
        for name in ("appArmorProfile", "fsGroupChangePolicy", "seLinuxChangePolicy", "seLinuxOptions",
                     "seccompProfile", "supplementalGroupsPolicy", "windowsOptions")
    },
    "Workflow": {"status": "the engine writes it"},
}  # fmt: skip

_USER = "a step runs as whoever runs the engine"
_LOCATION = "artifacts are carried from raw, S3 and the engine's own store"

_REFUSED: dict[str, dict[str, str]] = {
    "*": {
        "nodeSelector": _PLACED,
        "requiredDuringSchedulingIgnoredDuringExecution": _PLACED,
        "podSpecPatch": "there is no pod object to patch",
        "hostAliases": "a pod has no /etc/hosts of its own",
        "git": _LOCATION,
        "http": _LOCATION,
        "gcs": _LOCATION,
        "azure": _LOCATION,
        "oss": _LOCATION,
        "hdfs": _LOCATION,
        "artifactory": _LOCATION,
        "lifecycle": "containers have no hooks at their start and end",
        "volumeDevices": "there are no block devices",
    },
    "Template": {
        "containerSet": "a template of several containers with dependencies is not carried",
        "resource": "there is no cluster to make the object in",
        "http": "the engine calls no URLs; call it in a container",
        "data": "data templates are not carried",
        "plugin": "there are no executor plugins",
        "memoize": "results are not memoized; a step of this project finds out itself what is there",
        "archiveLocation": _LOCATION,
    },
    "Artifact": {"plugin": _LOCATION},
    "WorkflowSpec": {"ttlStrategy": "a run stays until it is deleted: `posttrain delete`"},
    "Mutex": {"database": "locks are held in the run store"},
    "SemaphoreRef": {"database": "locks are held in the run store"},
    "VolumeMount": {"subPathExpr": "use subPath with a tag"},
    "Container": {"restartPolicy": "a container is started once"},
    "ScriptTemplate": {"restartPolicy": "a container is started once"},
    "S3Artifact": {
        name: "not carried for S3"
        for name in ("caSecret", "encryptionOptions", "roleARN")
    },
    "ValueFrom": {"jqFilter": "belongs to resource templates", "jsonPath": "belongs to resource templates",
                  "event": "belongs to submissions by events"},
    "Probe": {"grpc": "probes are exec, httpGet and tcpSocket"},
    "SecurityContext": {
        "runAsUser": _USER, "runAsGroup": _USER, "runAsNonRoot": _USER,
        "privileged": _USER, "capabilities": _USER, "readOnlyRootFilesystem": "a step's own root is writable",
    },
    "PodSecurityContext": {
        "runAsUser": _USER, "runAsGroup": _USER, "runAsNonRoot": _USER, "fsGroup": _USER, "supplementalGroups": _USER,
        "sysctls": _USER,
    },
    "Volume": {
        name: "volumes are claims, emptyDir, hostPath, config maps, secrets, projected and downwardAPI"
        for name in (
            "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
            "gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs", "photonPersistentDisk",
            "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
        )
    },
    "VolumeProjection": {
        name: "a pod has no account with an API server" for name in ("clusterTrustBundle", "serviceAccountToken")
    },
    "DownwardAPIVolumeFile": {"resourceFieldRef": "files hold fields of the pod; resources go into the environment"},
    "ResourceRequirements": {"claims": "devices are asked for as nvidia.com/gpu"},
}  # fmt: skip

# Carried with some values only: those listed here mean what they say, every other one is refused.
VALUES: dict[tuple[str, str], tuple[tuple[Any, ...], str]] = {
    ("ArtifactGC", "strategy"): (("Never", ""), _KEPT),
    ("WorkflowLevelArtifactGC", "strategy"): (("Never", ""), _KEPT),
    ("WorkflowSpec", "automountServiceAccountToken"): ((True,), "Argo's own executor needs the token"),
    ("Template", "automountServiceAccountToken"): ((True,), "Argo's own executor needs the token"),
}

# Refused only where they ask for something; with these values they ask for nothing.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "privileged": (False,),
    "readOnlyRootFilesystem": (False,),
    "restartPolicy": ("", "Never"),
    "nodeSelector": ({}, {"kubernetes.io/os": "linux"}),
    "requiredDuringSchedulingIgnoredDuringExecution": ([],),
}

_CLOSED = ("ObjectMeta", "Plugin", "Item", "Time", "Quantity", "IntOrString")  # looked at by others


@dataclass(frozen=True)
class Field:
    """What the engine makes of a field: `state` is carried, ignored or refused; `why` for the last two."""

    model: str
    name: str
    state: str
    why: str = ""


def field_of(model: str, name: str) -> Field:
    """How a field of one of Argo's types stands."""
    kind = {"ArtifactPaths": "Artifact", "UserContainer": "Container"}.get(model, model)
    if model == "UserContainer" and name == "restartPolicy":
        return Field(model, name, REFUSED, "an init container that goes on is a sidecar")
    for place in (kind, "*"):
        for state, table in ((REFUSED, _REFUSED), (IGNORED, _IGNORED)):
            if name in table.get(place, {}) and not (place == "*" and _exempt(kind, name)):
                return Field(model, name, state, table[place][name])
    return Field(model, name, CARRIED)


def _exempt(model: str, name: str) -> bool:
    """Fields that only share a name with one that is meant by `*`."""
    return (model, name) in {("Sequence", "format")} or (name == "http" and model == "Template")


def children(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """The types that stand below a field."""

    def walk(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if "root" in annotation.model_fields and annotation.__name__ not in _CLOSED:
                yield from walk(annotation.model_fields["root"].annotation)
            else:
                yield annotation
        for one in get_args(annotation):
            yield from walk(one)

    found = next(field for key, field in model.model_fields.items() if (field.alias or key) == name)
    return list(dict.fromkeys(walk(found.annotation)))


@lru_cache(maxsize=1)
def table() -> list[Field]:
    """Every field that can be written in a manifest, type by type as they are met from Workflow on."""
    found: list[Field] = []
    queue: list[type[BaseModel]] = [models().Workflow, models().CronWorkflow]
    seen = set(queue)
    for model in queue:
        if model.__name__ in _CLOSED:
            continue
        for key, info in model.model_fields.items():
            field = field_of(model.__name__, info.alias or key)
            found.append(field)
            if field.state == CARRIED and field.name != "status":
                below = [one for one in children(model, field.name) if one not in seen]
                queue.extend(below)
                seen.update(below)
    return found


_BEGIN, _END = "<!-- fields: begin -->", "<!-- fields: end -->"


def as_markdown() -> str:
    """The table for the documentation, a line for each type, then what is not carried field by field."""
    by_model: dict[str, list[Field]] = {}
    for one in table():
        by_model.setdefault(one.model, []).append(one)
    lines = [_BEGIN, "", "| Type | carried | ignored | refused |", "|---|---|---|---|"]
    for model, listed in by_model.items():
        columns = [
            ", ".join(f"`{one.name}`" for one in listed if one.state == state) for state in (CARRIED, IGNORED, REFUSED)
        ]
        lines.append(f"| {model} | {' | '.join(columns)} |")
    for state, title in ((IGNORED, "Ignored, because"), (REFUSED, "Refused, because")):
        reasons: dict[str, dict[str, None]] = {}
        for one in table():
            if one.state == state:
                reasons.setdefault(one.why, {})[f"`{one.name}`"] = None
        lines += ["", f"{title}", ""]
        lines += [f"- {why}: {', '.join(names)}" for why, names in reasons.items()]
    lines += ["", "Carried with some values only", ""]
    for (model, name), (values, why) in VALUES.items():
        shown = ", ".join(f"`{json.dumps(value)}`" for value in values)
        lines.append(f"- `{name}` of {model} as {shown}; otherwise refused: {why}")
    return "\n".join([*lines, "", _END])


def main(file: str) -> None:
    """Write the table anew into a document between its two marks."""
    path = Path(file)
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    path.write_text(before + as_markdown() + rest.split(_END)[1], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
