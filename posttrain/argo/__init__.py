"""A cluster with Argo Workflows: submit a manifest, look at it, operate on it. Through the Argo server, or kubectl."""

from posttrain.argo.cluster import Absent, Cluster, Unreachable
from posttrain.argo.connection import connect
from posttrain.argo.status import FINAL
from posttrain.argo.wait import wait

__all__ = ["FINAL", "Absent", "Cluster", "Unreachable", "connect", "wait"]
