"""Claims sandboxes from a cluster through the SDK k8s-agent-sandbox, and lets go of them.

Invariant: what the driver makes in a cluster is named after the spec's digest, so workers share templates and
pools; each claim has an owner's deadline and is deleted when its sandbox is stopped.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any, Literal, Self

from k8s_agent_sandbox import AsyncSandboxClient
from k8s_agent_sandbox.models import SandboxdInClusterConnectionConfig
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiException

from posttrain.errors import UserError
from posttrain.sandbox.kubernetes.manifests import API, GRPC_PORT, REST_PORT, VERSION, check, pool, template
from posttrain.sandbox.kubernetes.remote import RemoteSandbox
from posttrain.sandbox.protocol import Outcome
from posttrain.sandbox.spec import Network, SandboxSpec

_KINDS = {"SandboxTemplate": "sandboxtemplates", "SandboxWarmPool": "sandboxwarmpools"}
_ACCESS = "the worker's service account may not do this: apply k8s/, or give it the role"


@dataclass(frozen=True)
class ClusterSettings:
    """`gateway` is host:port of the gateway's service; `warm` how many sandboxes of a spec the cluster keeps ready."""

    namespace: str = "default"
    runtime_class: str = "gvisor"
    gateway: str = ""
    warm: int = 1
    ready_seconds: int = 180
    mode: Literal["in-cluster-pod-ip", "in-cluster-service"] = "in-cluster-pod-ip"
    grpc_port: int = GRPC_PORT
    rest_port: int = REST_PORT


class KubernetesDriver:
    """To be used in one running event loop. `api` is the cluster; by default the pod's own, or the kubeconfig's."""

    def __init__(self, settings: ClusterSettings | None = None, *, api: kubernetes.ApiClient | None = None):
        self.settings = settings or ClusterSettings()
        self.alive: set[RemoteSandbox] = set()
        self._api, self._owned = api, api is None
        self._client: AsyncSandboxClient | None = None
        self._numbers = itertools.count(1)
        self._provided: set[str] = set()
        self._providing = asyncio.Lock()

    @property
    def client(self) -> AsyncSandboxClient:
        assert self._client is not None
        return self._client

    def sandbox(self, spec: SandboxSpec) -> RemoteSandbox:
        check(spec)
        if spec.network.mode is Network.gateway and not self.settings.gateway:
            remedy = "tell the driver its address, or choose another network.mode"
            raise UserError("leads nowhere: no gateway is set", field="network.mode", value="gateway", remedy=remedy)
        return RemoteSandbox(self, spec, next(self._numbers))

    async def provide(self, spec: SandboxSpec) -> None:
        """Have the spec's template and warm pool in the cluster; those of another worker are as good."""
        async with self._providing:
            await self._connect()
            if spec.digest in self._provided:
                return
            objects = kubernetes.CustomObjectsApi(self._api)
            settings = self.settings
            made = [
                template(spec, runtime_class=settings.runtime_class, gateway=settings.gateway),
                pool(spec, replicas=settings.warm),
            ]
            for manifest in made:
                try:
                    plural = _KINDS[manifest["kind"]]
                    await objects.create_namespaced_custom_object(API, VERSION, settings.namespace, plural, manifest)
                except ApiException as problem:
                    if problem.status != 409:
                        raise _refused(problem, manifest["kind"]) from None
            self._provided.add(spec.digest)

    async def end_of_pod(self, name: str, spec: SandboxSpec) -> tuple[Outcome, str] | None:
        """How the pod has ended; None where it runs."""
        try:
            pod = await kubernetes.CoreV1Api(self._api).read_namespaced_pod(name, self.settings.namespace)
        except ApiException as problem:
            if problem.status == 404:
                return Outcome.infrastructure_error, "the sandbox's pod is gone"
            return Outcome.infrastructure_error, f"the cluster does not say how it ended: {problem.reason}"
        for status in pod.status.container_statuses or []:
            for state in (status.state, status.last_state):
                if state is not None and state.terminated is not None:
                    if state.terminated.reason == "OOMKilled":
                        return Outcome.out_of_memory, f"more than {spec.memory} were asked for"
                    return Outcome.infrastructure_error, f"its container has ended: {state.terminated.reason}"
        if pod.status.reason == "Evicted":
            over = "ephemeral" in (pod.status.message or "") or "usage" in (pod.status.message or "").lower()
            outcome = Outcome.over_quota if over else Outcome.infrastructure_error
            return outcome, f"evicted: {pod.status.message}"
        return None

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.stop() for sandbox in list(self.alive)))
        if self._client is not None:
            await self._client.close()
        if self._api is not None and self._owned:
            await self._api.close()

    async def _connect(self) -> None:
        if self._client is not None:
            return
        if self._api is None:
            try:
                config.load_incluster_config()
            except config.ConfigException:
                try:
                    await config.load_kube_config()
                except (config.ConfigException, OSError) as problem:
                    remedy = "set KUBECONFIG, or run the worker in the cluster"
                    raise UserError(f"no cluster is known: {problem}", field="sandbox.driver", remedy=remedy) from None
            self._api = kubernetes.ApiClient()
        wanted: dict[str, Any] = {"mode": self.settings.mode}
        connection = SandboxdInClusterConnectionConfig(
            **wanted, rest_port=self.settings.rest_port, grpc_port=self.settings.grpc_port
        )
        self._client = AsyncSandboxClient(connection_config=connection, cleanup=False, api_client=self._api)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _refused(problem: ApiException, kind: str) -> UserError:
    if problem.status == 404:
        remedy = "install kubernetes-sigs/agent-sandbox with its extensions in the cluster"
        return UserError(f"the cluster knows no {kind}", field="sandbox.driver", value="kubernetes", remedy=remedy)
    return UserError(f"the cluster refuses a {kind}: {problem.status} {problem.reason}", remedy=_ACCESS)
