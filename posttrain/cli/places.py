"""The two places where runs are: a workspace of this machine, and a cluster. Commands see no difference.

Invariant: a command asks its `Place` and nothing else, so that what it prints and its exit code mean
the same in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from posttrain.argo.status import FINAL, named, phase, waiting_nodes
from posttrain.argo.wait import wait
from posttrain.cli.follow import Follower, observe, outcome
from posttrain.cli.options import existing
from posttrain.cli.view import Observed

JSON = dict[str, Any]


class On(StrEnum):
    local = "local"
    cluster = "cluster"


OnOption = Annotated[
    On,
    typer.Option(
        "--on",
        envvar="POSTTRAIN_ON",
        help="local: a workspace of this machine; cluster: that of ARGO_SERVER or kubectl.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Of the cluster. Default: ARGO_NAMESPACE, or default.")
]


class Place(Protocol):
    """`watch`, `resume` and `retry` follow the run to its end and give the exit code. `restarted` is the node field
    selector of steps that succeeded and are to run again."""

    def list(self) -> list[tuple[JSON, bool]]:
        """(workflow, whether nobody drives it although it has not ended), the oldest first."""
        ...

    def get(self, run: str) -> JSON: ...
    def observe(self, workflow: JSON) -> dict[str, Observed]: ...
    def logs(self, run: str, step: str | None, follow: bool = False) -> Iterator[tuple[str, str]]: ...
    def watch(self, run: str) -> int: ...
    def stop(self, run: str, *, now: bool) -> None: ...
    def resume(self, run: str) -> int: ...
    def retry(self, run: str, restarted: str) -> int: ...


def place(on: On, workspace: Path, namespace: str | None = None, profile: str = "laptop") -> Place:
    """Where the runs are that a command is about."""
    return Remote(namespace) if on is On.cluster else Local(workspace, profile)


class Local:
    """Runs of a workspace, on the embedded engine."""

    def __init__(self, workspace: Path, profile: str):
        from posttrain.cli.embedded import Embedded
        from workflows.profile import load_profile

        self._embedded = Embedded(existing(workspace), load_profile(profile))
        self._engine = self._embedded.engine

    def list(self) -> list[tuple[JSON, bool]]:
        found = self._engine.workflows()
        return [(workflow, phase(workflow) not in FINAL and not driven) for workflow, driven in found]

    def get(self, run: str) -> JSON:
        return self._engine.get(run)

    def observe(self, workflow: JSON) -> dict[str, Observed]:
        return observe(workflow, self._directory(workflow["metadata"]["name"]))

    def logs(self, run: str, step: str | None, follow: bool = False) -> Iterator[tuple[str, str]]:
        from posttrain.cli.embedded import step_logs

        return step_logs(self._engine, run, step, follow)

    def watch(self, run: str) -> int:
        return _watch(self, run, wait(self._engine, run, every=0.5), self._directory(run))

    def stop(self, run: str, *, now: bool) -> None:
        (self._engine.terminate if now else self._engine.stop)(run)
        if not self._engine.store(run).held():  # nobody drives it: the order waits for someone who does
            self._embedded.drive(run)

    def resume(self, run: str) -> int:
        if suspended(self.get(run)):
            self._engine.resume(run)
        if self._engine.store(run).held():
            return self.watch(run)
        return self._embedded.drive(run)

    def retry(self, run: str, restarted: str) -> int:
        self.get(run)  # says where there is none
        self._engine.retry(run, restart_successful=bool(restarted), selector=restarted)
        return self._embedded.drive(run)

    def _directory(self, run: str) -> Path:
        return self._embedded.workspace / "runs" / run


class Remote:
    """Workflows of a cluster."""

    def __init__(self, namespace: str | None):
        from posttrain.argo import connect

        self.cluster = connect(namespace=namespace)

    def list(self) -> list[tuple[JSON, bool]]:
        found = sorted(
            self.cluster.list_all(), key=lambda w: (w["metadata"]["creationTimestamp"], w["metadata"]["name"])
        )
        return [(workflow, False) for workflow in found]

    def get(self, run: str) -> JSON:
        return self.cluster.get(run)

    def observe(self, workflow: JSON) -> dict[str, Observed]:
        return {}

    def logs(self, run: str, step: str | None, follow: bool = False) -> Iterator[tuple[str, str]]:
        from posttrain.argo.logs import follow_logs, read_logs

        workflow = self.get(run)
        wanted = named(workflow, step)
        return follow_logs(self.cluster, run, wanted) if follow else read_logs(self.cluster, workflow, wanted)

    def watch(self, run: str) -> int:
        return _watch(self, run, wait(self.cluster, run), None)

    def stop(self, run: str, *, now: bool) -> None:
        (self.cluster.terminate if now else self.cluster.stop)(run)

    def resume(self, run: str) -> int:
        if suspended(self.get(run)):
            self.cluster.resume(run)
        return self.watch(run)

    def retry(self, run: str, restarted: str) -> int:
        self.cluster.retry(run, {}, restart_successful=bool(restarted), selector=restarted)
        return self.watch(run)


def _watch(where: Place, run: str, states: Iterable[JSON], directory: Path | None) -> int:
    """Draw the states of a run, the final one last; the exit code. `directory` is the run's, on this machine."""
    follower = Follower(run, directory)
    last: JSON = {}
    with follower.drawing():
        for last in states:
            follower.show(last)
    return outcome(last, run, lambda step: where.logs(run, step))


def suspended(workflow: JSON) -> bool:
    """Whether the workflow, or a step of it, waits for somebody to say that it may go on."""
    return bool(waiting_nodes(workflow) or workflow["spec"].get("suspend"))
