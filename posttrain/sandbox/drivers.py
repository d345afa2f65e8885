"""Which driver makes the sandboxes, chosen by name and settings."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.sandbox.protocol import Driver

NAMES = ("bubblewrap", "kubernetes")


@dataclass
class DriverSettings:
    """`gateway` is where `network.mode=gateway` leads: host:port (or unix:/path with bubblewrap).

    The others are a cluster's: its namespace, the runtime class of the pods (empty: the cluster's usual one), how many
    sandboxes of a spec it keeps ready, and how long one may take to be ready.
    """

    name: str = "bubblewrap"
    gateway: str = ""
    namespace: str = "default"
    runtime_class: str = "gvisor"
    warm: int = 1
    ready_seconds: int = 180

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError("is no driver", field="driver.name", value=self.name, remedy=f"one of {', '.join(NAMES)}")
        if self.warm < 0:
            raise UserError("is below zero", field="driver.warm", value=self.warm)


def open_driver(settings: DriverSettings | str = "bubblewrap") -> Driver:
    """A driver by its settings, or by its name alone. To be used and closed in one running event loop.

    Raises UserError where it cannot make sandboxes here.
    """
    if isinstance(settings, str):
        settings = DriverSettings(settings)
    if settings.name == "bubblewrap":
        from posttrain.sandbox.bubblewrap import BubblewrapDriver

        return BubblewrapDriver(gateway=settings.gateway)
    if importlib.util.find_spec("k8s_agent_sandbox") is None:
        remedy = "install k8s-agent-sandbox[async,grpc]"
        raise UserError("needs a package that is not here", field="driver.name", value="kubernetes", remedy=remedy)
    from posttrain.sandbox.kubernetes import ClusterSettings, KubernetesDriver

    cluster = ClusterSettings(
        namespace=settings.namespace,
        runtime_class=settings.runtime_class,
        gateway=settings.gateway,
        warm=settings.warm,
        ready_seconds=settings.ready_seconds,
    )
    return KubernetesDriver(cluster)
