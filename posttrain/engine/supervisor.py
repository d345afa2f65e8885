"""Carries out one pod, in a process and session of its own, so that it outlives the engine.

In order: artifacts in, init containers one by one, main and sidecars together, sidecars ended once
main has, outputs kept, status written. A request to stop and the pod's deadline cut in anywhere.

Invariants: the lock on `<pod>/lock` is held from before `start` returns until the last status is
written, so that a reader knows whether somebody still sees to the pod; when the supervisor ends,
no process of the pod is left; it never raises: what goes wrong becomes the pod's Error.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
import traceback
from dataclasses import replace
from typing import Any, Literal

from posttrain.engine import artifacts, logs, outputs, probes, processes, verdict
from posttrain.engine.containers import declared_paths, expand, is_main, layout_of, process_of, termination_log_of
from posttrain.engine.isolation import Driver, Launch, mapped, options_for, wrapped
from posttrain.engine.paths import SCRIPT, clean
from posttrain.engine.poddir import PodDirectory
from posttrain.engine.podspec import PodSpec, PodStatus
from posttrain.errors import UserError

JSON = dict[str, Any]
_WORD_BYTES = 4096  # of a container's last word, as the kubelet keeps


class Container:
    """One container of the pod, from its start to its exit code."""

    def __init__(self, pod: Supervisor, declared: JSON):
        self.pod, self.declared, self.name = pod, declared, declared["name"]
        self.layout = layout_of(pod.spec, declared)
        self.main = is_main(pod.spec, declared)
        self.ready = "readinessProbe" not in declared and "startupProbe" not in declared
        self.capture: logs.Capture | None = None
        self._inner: asyncio.Future[int] | None = None  # bubblewrap's child, pid 1 of the container, by its pid here
        self._watchers: list[asyncio.Task] = []
        self._unhealthy = False

    def prepare(self) -> None:
        """Make the container's own directories; inputs may then be put into them."""
        for path in (self.layout.root + "/tmp", self.layout.root + "/var/tmp"):
            os.makedirs(path, exist_ok=True)
        open(termination_log_of(self.pod.spec, self.name), "w").close()
        for mount in self.layout.mounts:
            if not os.path.exists(mount.host):
                os.makedirs(mount.host)  # a subPath that nobody has made yet
        for path in declared_paths(self.pod.spec) if self.main else ():
            os.makedirs(os.path.dirname(self.layout.find(path)), exist_ok=True)

    def start(self) -> None:
        """Start the command; raises UserError where there is none and OSError where it cannot be started."""
        process = process_of(self.pod.spec, self.declared, self.layout)
        log = logs.open_for_writing(self.pod.spec.directory, self.name)
        reader = writer = None
        if self.main and self.pod.spec.capture_result:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self.capture = logs.Capture(log)
        try:
            if self.pod.driver == "bubblewrap":
                os.makedirs(self.layout.root, exist_ok=True)
                options = options_for(self.layout, process.working_directory)
                information, write = os.pipe2(os.O_CLOEXEC)
                self._launch = wrapped(process, options, information=write)
                self._popen = _spawn(self._launch, log if writer is None else writer, log, keep=(write,))
                os.close(write)
                self._inner = _read_pid(information)
            else:
                self._launch = mapped(process)
                self._popen = _spawn(self._launch, log if writer is None else writer, log, session=True)
        finally:
            if writer is not None:
                os.close(writer)
        self.exited = processes.exit_of(self._popen)
        self._reader, self._log = reader, log
        if reader is not None:
            os.set_blocking(reader, False)
            asyncio.get_running_loop().add_reader(reader, self._copy)
        else:
            os.close(log)
        self._watchers.append(asyncio.ensure_future(self._healthy()))

    async def ended(self) -> verdict.Ended:
        """Wait for the exit; then nothing of the container runs any more."""
        code = await asyncio.shield(self.exited)
        for watcher in self._watchers:
            watcher.cancel()
        if self.pod.driver == "paths":
            processes.sweep(f"{self.pod.spec.directory}/{self.name}")
        if self._reader is not None:
            self._copy()
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            os.close(self._log)
            self._reader = None
        return verdict.Ended(self.name, code, word=self._word())

    async def end(self, grace: float) -> verdict.Ended:
        """SIGTERM to the container's processes, SIGKILL after `grace` seconds."""
        if not self.exited.done() and grace > 0:
            await self._signal(signal.SIGTERM)
            await asyncio.wait([self.exited], timeout=grace)
        if not self.exited.done():
            await self._signal(signal.SIGKILL)
        return await self.ended()

    async def run(self, command: list[str], limit: float) -> bool:
        """A command in the container: did it end with 0 within `limit` seconds?"""
        process = process_of(self.pod.spec, self.declared, self.layout, command)
        launch, keep = mapped(process), ()
        if self._launch.bubblewrap is not None:
            space = os.open(f"/proc/{await self._pid_one()}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            launch, keep = wrapped(process, ["--pidns", str(space), *self._launch.bubblewrap]), (space,)
        try:
            started = _spawn(launch, subprocess.DEVNULL, subprocess.DEVNULL, keep=keep, session=True)
        except OSError:
            return False
        finally:
            for handle in keep:
                os.close(handle)
        exited = processes.exit_of(started)
        await asyncio.wait([exited], timeout=limit)
        if not exited.done():
            processes.send(started.pid, signal.SIGKILL, group=True)
        return await exited == 0

    async def _healthy(self) -> None:
        """Ask the probes; a container that fails its startup or liveness probe is ended."""
        ports = {p["name"]: int(p["containerPort"]) for p in self.declared.get("ports") or [] if p.get("name")}

        async def ask(name: str, told) -> None:
            await probes.watch(self.declared[name], self.pod.spec.ip, ports, self.run, told)

        if "startupProbe" in self.declared:
            up = asyncio.get_running_loop().create_future()
            asking = asyncio.ensure_future(ask("startupProbe", lambda answer: up.done() or up.set_result(answer)))
            try:
                alive = await up
            finally:
                asking.cancel()
            if not alive:
                await self._fail_health()
                return
        if "livenessProbe" in self.declared:
            self._watchers.append(asyncio.ensure_future(ask("livenessProbe", self._told_alive)))
        if "readinessProbe" in self.declared:
            await ask("readinessProbe", self._told_ready)
        else:
            self._told_ready(True)

    def _told_ready(self, answer: bool) -> None:
        if self.ready is not answer:
            self.ready = answer
            self.pod.changed()

    def _told_alive(self, answer: bool) -> None:
        if not answer:
            self._watchers.append(asyncio.ensure_future(self._fail_health()))

    async def _fail_health(self) -> None:
        await self._signal(signal.SIGTERM)
        await asyncio.wait([self.exited], timeout=self.pod.spec.grace_seconds)
        await self._signal(signal.SIGKILL)

    async def _pid_one(self) -> int:
        assert self._inner is not None
        return await asyncio.shield(self._inner)

    async def _signal(self, number: signal.Signals) -> None:
        if self.exited.done():
            return
        if self._launch.bubblewrap is None:
            processes.send(self._popen.pid, number, group=True)
            return
        one = await self._pid_one()
        if number is signal.SIGKILL:
            processes.send(one or self._popen.pid, number)  # the namespace goes with its first process
            return
        while one and not processes.children(one) and not self.exited.done():
            await asyncio.sleep(0.005)  # bubblewrap is still making the container
        processes.send(one or self._popen.pid, number, group=True)

    def _copy(self) -> None:
        assert self._reader is not None and self.capture is not None
        while True:
            try:
                data = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._reader)
                return
            self.capture.feed(data)

    def _word(self) -> str:
        try:
            with open(termination_log_of(self.pod.spec, self.name), "rb") as source:
                return source.read(_WORD_BYTES).decode(errors="replace")
        except OSError:
            return ""


class Supervisor:
    def __init__(self, spec: PodSpec, driver: Driver):
        self.spec, self.driver = spec, driver
        self.directory = PodDirectory(spec.directory)
        self.status = PodStatus(started=time.time())
        self.running: dict[str, Container] = {}
        self._order: asyncio.Future[tuple[Literal["deadline", "stop"], float]]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._order = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self._look_for_order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self.directory.claim()
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
        self._set(phase=phase, message=message or self.directory.full_disk(), ready=False, finished=time.time())
        shutil.rmtree(f"{self.spec.directory}/root", ignore_errors=True)

    async def _live(self) -> tuple[verdict.Phase, str]:
        main = Container(self, self.spec.main)
        main.prepare()
        try:
            self._bring_inputs(main)
        except (artifacts.ArtifactError, OSError) as problem:
            return verdict.decide(None, before=_one_line(problem))
        for declared in self.spec.init:
            ended = await self._init(declared)
            if self._order.done() or (ended is not None and ended.code):
                return verdict.decide(None, init=ended, cut_short=self._cut)
        sidecars = [Container(self, declared) for declared in self.spec.sidecars]
        for sidecar in sidecars:
            sidecar.prepare()
        for container in (*sidecars, main):
            container.start()
            self.running[container.name] = container
        self._set(phase="Running", containers=self._states())
        await asyncio.wait([main.exited, self._order], return_when=asyncio.FIRST_COMPLETED)
        grace = self._order.result()[1] if self._order.done() else self.spec.grace_seconds
        if self._order.done():
            ended, *beside = await asyncio.gather(*(c.end(grace) for c in (main, *sidecars)))
        else:
            ended, beside = await main.ended(), await asyncio.gather(*(s.end(grace) for s in sidecars))
        kept, after = outputs.collect(self.spec, main.layout)
        kept["exitCode"] = str(ended.code)
        if main.capture is not None:
            kept["result"] = main.capture.result()
            after = after or (_one_line(main.capture.problem) if main.capture.problem else "")
        self.status = replace(self.status, outputs=kept, containers=self._states([ended, *beside]))
        return verdict.decide(ended, sidecars=list(beside), after=after, daemon=self.spec.daemon, cut_short=self._cut)

    async def _init(self, declared: JSON) -> verdict.Ended | None:
        """Run an init container to its end; None where the pod was cut short meanwhile."""
        container = Container(self, declared)
        container.prepare()
        container.start()
        self.running[container.name] = container
        await asyncio.wait([container.exited, self._order], return_when=asyncio.FIRST_COMPLETED)
        if self._order.done():
            await container.end(self._order.result()[1])
            return None
        ended = await container.ended()
        del self.running[container.name]
        return ended

    def _bring_inputs(self, main: Container) -> None:
        for artifact in self.spec.inputs:
            if not any(key in artifact for key in ("raw", "s3", "store")):
                if artifact.get("optional"):
                    continue
                raise artifacts.ArtifactError(f"artifact {artifact['name']} was not supplied")
            try:
                artifacts.fetch(artifact, main.layout.find(clean(artifact["path"])), store=self.spec.store)
            except (artifacts.ArtifactError, OSError) as problem:
                raise artifacts.ArtifactError(
                    f"artifact {artifact['name']} failed to load: {_one_line(problem)}"
                ) from None
        if self.spec.source is not None:
            path = main.layout.place(SCRIPT)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            source = expand(
                self.spec.source, {}
            )  # the controller hands it over in a variable, which the kubelet expands
            with open(path, "w", encoding="utf-8", newline="") as out:
                out.write(main.layout.rewrite(source) if self.driver == "paths" else source)
            os.chmod(path, 0o755)

    async def _leave_nothing(self) -> None:
        await asyncio.gather(*(c.end(0) for c in self.running.values() if not c.exited.done()))
        if self.driver == "paths":
            processes.sweep(self.spec.directory)

    def changed(self) -> None:
        self._set(ready=all(c.ready for c in self.running.values()), containers=self._states())

    def _states(self, ended: list[verdict.Ended] | None = None) -> dict[str, JSON]:
        codes = {e.name: e for e in ended or []}
        return {
            name: {"state": "terminated", "exitCode": codes[name].code, "reason": codes[name].reason}
            if name in codes
            else {"state": "running", "pid": container._popen.pid}
            for name, container in self.running.items()
        }

    @property
    def _cut(self) -> Literal["", "deadline", "stop"]:
        return self._order.result()[0] if self._order.done() else ""

    def _look_for_order(self) -> None:
        grace = self.directory.stop_requested()
        if grace is not None:
            self._cut_short("stop", grace)

    def _cut_short(self, why: Literal["deadline", "stop"], grace: float) -> None:
        if not self._order.done():
            self._order.set_result((why, grace))
        elif grace == 0:
            for container in self.running.values():  # asked again, and harder
                asyncio.ensure_future(container._signal(signal.SIGKILL))

    def _set(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
        self.directory.write_status(self.status, self.spec.id)


def supervise(directory: str, driver: Driver) -> None:
    """The life of a supervisor's process. SIGTERM is blocked when this is called."""
    with open(f"{directory}/pod.json", encoding="utf-8") as source:
        spec = PodSpec(**json.load(source))
    processes.adopt_orphans()
    os.makedirs(f"{directory}/logs", exist_ok=True)
    asyncio.run(Supervisor(spec, driver).run())


def _spawn(
    launch: Launch, stdout: int, stderr: int, *, keep: tuple[int, ...] = (), session: bool = False
) -> subprocess.Popen:
    return subprocess.Popen(
        launch.argv, env=launch.environment, cwd=launch.directory, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        pass_fds=keep, start_new_session=session, preexec_fn=processes.prepare_child,
    )  # fmt: skip


def _read_pid(information: int) -> asyncio.Future[int]:
    """The pid that bubblewrap writes into the pipe `information`; 0 where it could not start."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[int] = loop.create_future()
    text = bytearray()

    def read() -> None:
        data = os.read(information, 4096)
        text.extend(data)
        if not data:
            loop.remove_reader(information)
            os.close(information)
            found.set_result(int(json.loads(text)["child-pid"]) if text else 0)

    loop.add_reader(information, read)
    return found


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__
