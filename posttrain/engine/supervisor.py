"""Carries out one pod, in a process and session of its own, so that it outlives the engine.

In order: artifacts in, init containers one by one, main and sidecars together, sidecars ended once
main has, outputs kept, status written. A request to stop and the pod's deadline cut in anywhere.

Invariants: the lock on `<pod>/lock` is held from before `PodRunner.start` returns until the last
status is written, so that a reader knows whether somebody still sees to the pod; when the supervisor
ends, no process of the pod is left; it never raises: what goes wrong becomes the pod's Error.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import traceback
from dataclasses import replace
from typing import Any, Literal

from posttrain.engine import artifacts, network, outputs, verdict
from posttrain.engine.container import Container
from posttrain.engine.isolation import Driver
from posttrain.engine.kubelet import expand
from posttrain.engine.paths import SCRIPT, clean
from posttrain.engine.poddir import PodDirectory
from posttrain.engine.podspec import PodSpec, PodStatus
from posttrain.engine.verdict import Ended
from posttrain.errors import UserError
from posttrain.isolation import processes

JSON = dict[str, Any]
Cut = Literal["deadline", "stop"]


class Supervisor:
    def __init__(self, spec: PodSpec, driver: Driver):
        self.spec, self.driver = spec, driver
        self.directory = PodDirectory(spec.directory)
        self.status = PodStatus(started=time.time())
        self._containers: dict[str, Container] = {}
        self._ended: dict[str, Ended] = {}
        self._order: asyncio.Future[tuple[Cut, float]]  # why the pod is cut short, and the seconds of grace
        self._killing: list[asyncio.Task] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._order = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self._look_for_order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._look_for_order()
        if self.spec.deadline_seconds is not None:
            loop.call_later(self.spec.deadline_seconds, self._cut_short, "deadline", self.spec.grace_seconds)
        try:
            phase, message = await self._live()
        except (OSError, UserError) as problem:
            phase, message = "Error", _one_line(problem)
        except Exception as problem:
            self.directory.note(traceback.format_exc())
            phase, message = "Error", f"the pod's supervisor failed: {_one_line(problem)}"
        await self._leave_nothing()
        if phase != "Succeeded":
            message = "; ".join(part for part in (message, self.directory.full_disk()) if part)
        self._set(phase=phase, message=message, ready=False, finished=time.time(), containers=self._states())
        self.directory.clear()

    async def _live(self) -> tuple[verdict.Phase, str]:
        main = self._container(self.spec.main)
        try:
            self._bring_inputs(main)
        except (artifacts.ArtifactError, OSError) as problem:
            return verdict.decide(None, before=_one_line(problem))
        network.Gate(self.spec.ip)
        for declared in self.spec.init:
            ended = await self._to_end([self._start(self._container(declared))])
            if self._order.done() or ended[0].code:
                return verdict.decide(None, init=ended[0], cut_short=self._cut)
        sidecars = [self._start(self._container(declared)) for declared in self.spec.sidecars]
        self._start(main)
        self._set(phase="Running", ready=self._ready(), containers=self._states())
        ended = await self._to_end([main, *sidecars])
        kept, after = outputs.collect(self.spec, main.layout)
        kept["exitCode"] = str(ended[0].code)
        if main.captured is not None:
            kept["result"] = main.captured.result()
            after = after or (_one_line(main.captured.problem) if main.captured.problem else "")
        self.status = replace(self.status, outputs=kept)
        daemon = self.spec.daemon
        return verdict.decide(ended[0], sidecars=ended[1:], after=after, daemon=daemon, cut_short=self._cut)

    def _container(self, declared: JSON) -> Container:
        container = Container(self.spec, declared, self.driver, self._changed)
        container.prepare()
        return container

    def _start(self, container: Container) -> Container:
        container.start()
        self._containers[container.name] = container
        return container

    async def _to_end(self, containers: list[Container]) -> list[Ended]:
        """Wait for the first of `containers`, then end the others; an order to stop ends all at once."""
        first, *others = containers
        either: list[asyncio.Future] = [first.exited, self._order]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._order.done():
            ended = await asyncio.gather(*(c.end(self._order.result()[1]) for c in containers))
        else:
            ended = [await first.ended(), *await asyncio.gather(*(c.end(self.spec.grace_seconds) for c in others))]
        self._ended |= {e.name: e for e in ended}
        return ended

    def _bring_inputs(self, main: Container) -> None:
        for artifact in self.spec.inputs:
            if not any(key in artifact for key in ("raw", "s3")):
                if artifact.get("optional"):
                    continue
                raise artifacts.ArtifactError(f"artifact {artifact['name']} was not supplied")
            place = main.layout.find(clean(artifact["path"]))
            try:
                artifacts.fetch(artifact, place, store=self.spec.store)
            except (artifacts.ArtifactError, OSError) as problem:
                reason = f"artifact {artifact['name']} failed to load: {_one_line(problem)}"
                raise artifacts.ArtifactError(reason) from None
        if self.spec.source is not None:
            # The controller hands the source over in a variable, in which the kubelet expands what looks like one.
            source = expand(self.spec.source, {})
            path = main.layout.place(SCRIPT)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as out:
                out.write(main.layout.rewrite(source) if self.driver == "paths" else source)
            os.chmod(path, 0o755)

    async def _leave_nothing(self) -> None:
        await asyncio.gather(*(c.end(0) for name, c in self._containers.items() if name not in self._ended))
        await asyncio.gather(*self._killing)

    def _changed(self) -> None:
        self._set(ready=self._ready(), containers=self._states())

    def _ready(self) -> bool:
        return all(c.ready for name, c in self._containers.items() if name not in self._ended)

    def _states(self) -> dict[str, JSON]:
        def state(name: str, container: Container) -> JSON:
            ended = self._ended.get(name)
            if ended is None:
                return {"state": "running", "pid": container.pid}
            return {"state": "terminated", "exitCode": ended.code, "reason": ended.reason}

        return {name: state(name, container) for name, container in self._containers.items()}

    @property
    def _cut(self) -> Literal["", "deadline", "stop"]:
        return self._order.result()[0] if self._order.done() else ""

    def _look_for_order(self) -> None:
        grace = self.directory.stop_requested()
        if grace is not None:
            self._cut_short("stop", grace)

    def _cut_short(self, why: Cut, grace: float) -> None:
        if not self._order.done():
            self._order.set_result((why, grace))
        elif grace == 0:  # asked again, and harder
            self._killing += [asyncio.ensure_future(c.signal(signal.SIGKILL)) for c in self._containers.values()]

    def _set(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
        self.directory.write_status(self.status, self.spec.id)


def supervise(directory: str, driver: Driver, lock: int) -> None:
    """The life of a supervisor's process, which holds the pod's `lock`. SIGTERM is blocked when this is called."""
    PodDirectory(directory).claim(lock)
    with open(f"{directory}/pod.json", encoding="utf-8") as source:
        spec = PodSpec(**json.load(source))
    processes.adopt_orphans()
    os.makedirs(f"{directory}/logs", exist_ok=True)
    asyncio.run(Supervisor(spec, driver).run())


def _one_line(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    return " ".join(str(problem).split()) or type(problem).__name__
