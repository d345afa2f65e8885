"""What the pods of a workflow write, with the names of their nodes.

A pod's name follows from its node by Argo's rule (util.GeneratePodName, version 2), so that a log is
found without a right to list pods. Argo's executor speaks in the same stream; its lines are left out.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from posttrain.argo.cluster import Absent, Cluster
from posttrain.argo.status import nodes_of
from posttrain.argo.wait import wait

JSON = dict[str, Any]

_EXECUTOR = re.compile(r"time=\d{4}-\d\d-\d\dT\S+ level=\w+ .*\bargo=true\b.*$")
_LONGEST_PREFIX = 253 - 10 - 1  # of a pod's name: what is left beside the hash


def pod_name(workflow: JSON, node: JSON) -> str:
    """The name of the node's pod."""
    name = workflow["metadata"]["name"]
    if node["name"] == name:
        return name
    template = node.get("templateName") or (node.get("templateRef") or {}).get("template", "")
    prefix = name if ".inline" in node["name"] else f"{name}-{template}"
    return f"{prefix[:_LONGEST_PREFIX]}-{node['id'].rpartition('-')[2]}"


def pods_of(workflow: JSON) -> list[tuple[str, str]]:
    """(display name, pod's name) of the nodes with a pod, in the order of their start."""
    nodes = nodes_of(workflow).values()
    pods = [node for node in nodes if node.get("type") == "Pod" and node.get("phase") != "Pending"]
    return [(n["displayName"], pod_name(workflow, n)) for n in sorted(pods, key=lambda n: n.get("startedAt") or "")]


def read_logs(cluster: Cluster, workflow: JSON, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """(display name, line) of what was written so far by the nodes whose display name is wanted.

    A pod that is gone took its log with it.
    """
    for display, pod in pods_of(workflow):
        if wanted(display):
            yield from ((display, line) for line in _lines(cluster, workflow["metadata"]["name"], pod, follow=False))


def follow_logs(cluster: Cluster, name: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The same as it comes, until the workflow has ended."""
    lines: queue.Queue[tuple[str, str] | BaseException | None] = queue.Queue()
    threading.Thread(target=_follow, args=(cluster, name, wanted, lines.put), daemon=True).start()
    while (item := lines.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _follow(cluster: Cluster, name: str, wanted: Callable[[str], bool], put: Callable[[Any], None]) -> None:
    """A thread for each pod, started when the pod is seen; `put` its lines, and None at the end."""
    readers: dict[str, threading.Thread] = {}

    def read(display: str, pod: str) -> None:
        for line in _lines(cluster, name, pod, follow=True):
            put((display, line))

    try:
        for workflow in wait(cluster, name, every=1.0):
            for display, pod in pods_of(workflow):
                if wanted(display) and pod not in readers:
                    readers[pod] = threading.Thread(target=read, args=(display, pod), daemon=True)
                    readers[pod].start()
        for reader in readers.values():
            reader.join()
    except BaseException as problem:  # told to whoever reads
        put(problem)
    put(None)


def _lines(cluster: Cluster, workflow: str, pod: str, *, follow: bool) -> Iterator[str]:
    try:
        for line in cluster.pod_log(workflow, pod, follow=follow):
            said = _EXECUTOR.sub("", line)
            if said or not line:
                yield said
    except Absent:
        return
