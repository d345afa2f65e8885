"""Publishers, replicas and a coordinator as processes of their own, for tests to look at and to kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from posttrain.etha.coordinator.client import EthaClient
from posttrain.etha.coordinator.view import ReplicaView, VersionsView
from posttrain.etha.layout import Placed
from posttrain.etha.slices import Want
from tests.etha import actors
from tests.processes import free_port, wait_until

# Forked from a process that has imported torch and does nothing else: a start costs milliseconds.
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.etha.actors"])
SECONDS = 60


class Actor:
    """A process and the connection to it."""

    def __init__(self, target: Any, *arguments: Any, talks: bool = True):
        ours, theirs = CONTEXT.Pipe() if talks else (None, None)
        self.orders: Connection | None = ours
        given = (theirs, *arguments) if talks else arguments
        self.process: BaseProcess = CONTEXT.Process(target=target, args=given, daemon=True)
        self.process.start()
        if theirs is not None:
            theirs.close()

    def hears(self, seconds: float = SECONDS) -> Any:
        assert self.orders is not None and self.orders.poll(seconds), "the process says nothing"
        return self.orders.recv()

    def tell(self, *order: Any) -> None:
        assert self.orders is not None
        self.orders.send(order)

    def stop_at(self, place: str) -> None:
        self.tell("stop at", place)
        assert self.hears() == "will stop"

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, how)
        if how is signal.SIGKILL:
            self.process.join()

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        if self.orders is not None:
            self.orders.close()


class World:
    """`with World(directory, placed, ranks=4) as world:` has a coordinator; sources and replicas are added."""

    def __init__(
        self, directory: Path, placed: Mapping[str, Placed], aliases: Mapping[str, str], sources: int, *,
        transport: str = "shm", keep: int = 0, **settings: Any,
    ):  # fmt: skip
        self._placed, self._aliases, self._count, self._transport = placed, aliases, sources, transport
        self._keep = keep
        self._port = free_port()
        self._settings = {
            "database": str(directory / "etha.db"), "lease_seconds": 3.0, "retry_seconds": 0.1, "bucket_bytes": 8192,
        } | settings  # fmt: skip
        self.sources: dict[int, Actor] = {}
        self.ranks: dict[tuple[str, int], Actor] = {}
        self._all: list[Actor] = []

    def __enter__(self) -> World:
        self.start_coordinator()
        self.client = EthaClient(f"http://127.0.0.1:{self._port}", patience=10)
        self.client.wait_ready(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._all:
            actor.end()
        self.client.close()

    def start_coordinator(self) -> None:
        self.coordinator = self._add(actors.run_coordinator, self._settings, self._port, talks=False)

    def source(self, rank: int, at: str = "") -> Actor:
        self.sources[rank] = actor = self._add(
            actors.run_source, self._url, self._placed, self._aliases, rank, self._count, self._transport, at,
            {"keep": self._keep},
        )  # fmt: skip
        return actor

    def replica(self, name: str, wants: Sequence[Sequence[Want]], at: Mapping[int, str] | None = None) -> None:
        for rank in range(len(wants)):
            self.rank(name, wants, rank, (at or {}).get(rank, ""))

    def rank(self, name: str, wants: Sequence[Sequence[Want]], rank: int, at: str = "") -> Actor:
        self.ranks[name, rank] = actor = self._add(
            actors.run_rank, self._url, self._placed, self._aliases, name, rank, len(wants), tuple(wants[rank]),
            self._transport, at,
        )  # fmt: skip
        return actor

    def ready(self) -> None:
        """Until every process has joined."""
        for actor in [*self.sources.values(), *self.ranks.values()]:
            if not hasattr(actor, "joined"):
                assert actor.hears() == "ready"
                actor.joined = True  # type: ignore[attr-defined]

    def push(self, version: int) -> list[Any]:
        """What each source's push came to."""
        self.begin(version)
        return self.ends()

    def begin(self, version: int) -> None:
        for source in self.sources.values():
            source.tell("push", version)

    def ends(self) -> list[Any]:
        answers = []
        for source in self.sources.values():
            what, outcome = source.hears()
            assert what == "push"
            answers.append(outcome)
        return answers

    def applied(self, name: str, version: int) -> None:
        """Every rank of the replica has changed to the version, and had every byte of it."""
        for (replica, _), actor in self.ranks.items():
            if replica == name:
                assert actor.hears() == ("applied", version, [])

    def versions(self) -> VersionsView:
        return self.client.versions()

    def view(self, name: str) -> ReplicaView:
        return next(view for view in self.versions().replicas if view.replica == name)

    def wait_serving(self, name: str, version: int) -> None:
        def serves() -> bool:
            view = self.view(name)
            return view.traffic and view.version == version

        wait_until(serves, f"{name} does not serve {version}", SECONDS, every=0.05)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _add(self, target: Any, *arguments: Any, talks: bool = True) -> Actor:
        actor = Actor(target, *arguments, talks=talks)
        self._all.append(actor)
        return actor
