"""The cluster that the environment names."""

from __future__ import annotations

import os
import shutil

from posttrain.argo.cluster import Cluster
from posttrain.argo.settings import read_settings
from posttrain.errors import UserError


def connect(*, namespace: str | None = None) -> Cluster:
    """The Argo server that the environment names; else kubectl, where it is installed."""
    settings = read_settings(os.environ, namespace=namespace)
    if settings.server:
        from posttrain.argo.server import Server  # httpx: a tenth of a second that kubectl's users do not pay

        return Server(settings)
    if shutil.which("kubectl") is None:
        raise UserError("no cluster is known", field="ARGO_SERVER", remedy="set it, or put kubectl on PATH")
    from posttrain.argo.kubectl import Kubectl

    return Kubectl(namespace or os.environ.get("ARGO_NAMESPACE") or None)
