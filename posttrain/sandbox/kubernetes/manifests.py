"""From a spec to a SandboxTemplate and a SandboxWarmPool. Pure: a spec in, manifests out.

Fields as in extensions.agents.x-k8s.io/v1beta1 (kubernetes-sigs/agent-sandbox, extensions/api/v1beta1).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from posttrain.errors import UserError
from posttrain.sandbox.spec import WORKSPACE, Network, SandboxSpec

API = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"
REST_PORT, GRPC_PORT = 8080, 9090  # of sandboxd
PART_OF = {"app.kubernetes.io/part-of": "posttrain"}
WORKER = {**PART_OF, "app.kubernetes.io/component": "sandbox-worker"}  # pods that may speak to a sandbox
GATEWAY = {**PART_OF, "app.kubernetes.io/component": "gateway"}

JSON = dict[str, Any]


def name_of(spec: SandboxSpec) -> str:
    """Of the template and the pool: equal specs share both."""
    return f"posttrain-{spec.digest}"


def check(spec: SandboxSpec) -> None:
    """UserError for what a cluster cannot do with a spec."""
    if not spec.image:
        raise UserError("is needed in a cluster", field="image", remedy="name one that carries sandboxd")
    for field in ("root", "mounts"):
        if getattr(spec, field):
            remedy = "put it into the image, or into files"
            raise UserError("is of this machine and not to be had in a cluster", field=field, remedy=remedy)
    for entry in spec.network.allow:
        try:
            ipaddress.ip_address(_host(entry))
        except ValueError:
            remedy = "give its addresses, or choose network.mode=gateway"
            raise UserError(
                "is a name, which a network policy cannot allow", field="network.allow", value=entry, remedy=remedy
            ) from None


def template(spec: SandboxSpec, *, runtime_class: str, gateway: str) -> JSON:
    """`gateway` is host:port of the gateway's service."""
    return _object("SandboxTemplate", name_of(spec)) | {
        "spec": {
            "podTemplate": {
                "metadata": {"labels": {**PART_OF, "app.kubernetes.io/component": "sandbox"}},
                "spec": _pod(spec, runtime_class),
            },
            "networkPolicyManagement": "Managed",
            "networkPolicy": _policy(spec, gateway),
            "envVarsInjectionPolicy": "Disallowed",
            "volumeClaimTemplatesPolicy": "Disallowed",
        }
    }


def pool(spec: SandboxSpec, *, replicas: int) -> JSON:
    wanted = {"replicas": replicas, "sandboxTemplateRef": {"name": name_of(spec)}}
    return _object("SandboxWarmPool", name_of(spec)) | {"spec": wanted}


def _object(kind: str, name: str) -> JSON:
    return {"apiVersion": f"{API}/{VERSION}", "kind": kind, "metadata": {"name": name, "labels": dict(PART_OF)}}


def _pod(spec: SandboxSpec, runtime_class: str) -> JSON:
    limits = {"cpu": f"{spec.cpu:g}", "memory": spec.memory, "ephemeral-storage": spec.disk}
    writable = [("workspace", WORKSPACE), ("tmp", "/tmp")]
    return {
        **({"runtimeClassName": runtime_class} if runtime_class else {}),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",  # a sandbox that has died is not the same one started again
        "securityContext": {
            "runAsUser": spec.user,
            "runAsGroup": spec.user,
            "runAsNonRoot": spec.user != 0,
            "fsGroup": spec.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "sandbox",
                "image": spec.image,
                "imagePullPolicy": "IfNotPresent",
                "workingDir": spec.workdir,
                "ports": [{"containerPort": port} for port in (REST_PORT, GRPC_PORT)],
                "resources": {"limits": limits, "requests": limits},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": name, "mountPath": path} for name, path in writable],
            }
        ],
        "volumes": [{"name": name, "emptyDir": {"sizeLimit": spec.disk}} for name, _ in writable],
    }


def _policy(spec: SandboxSpec, gateway: str) -> JSON:
    """In: workers, to sandboxd alone. Out: nothing, or what the spec grants. A list that is absent denies all."""
    ports = [{"protocol": "TCP", "port": port} for port in (REST_PORT, GRPC_PORT)]
    policy: JSON = {"ingress": [{"from": [{"podSelector": {"matchLabels": WORKER}}], "ports": ports}]}
    if spec.network.mode is Network.gateway:
        port = {"protocol": "TCP", "port": int(gateway.rpartition(":")[2])}
        dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
        policy["egress"] = [
            {"to": [{"podSelector": {"matchLabels": GATEWAY}}], "ports": [port]},
            {"to": [system], "ports": dns},
        ]
    elif spec.network.mode is Network.allow:
        policy["egress"] = [_allowed(entry) for entry in spec.network.allow]
    return policy


def _allowed(entry: str) -> JSON:
    address = ipaddress.ip_address(_host(entry))
    port = {"protocol": "TCP", "port": int(entry.rpartition(":")[2])}
    return {"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], "ports": [port]}


def _host(entry: str) -> str:
    return entry.rpartition(":")[0].strip("[]")
