"""A cluster with Argo Workflows: submit a manifest, and wait for it. Through the Argo server, or kubectl."""

from posttrain.argo.connection import Cluster, connect
from posttrain.argo.status import FINAL
from posttrain.argo.wait import wait

__all__ = ["FINAL", "Cluster", "connect", "wait"]
