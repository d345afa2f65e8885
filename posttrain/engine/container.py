"""One container while it runs: its processes, log, probes, memory and address.

Invariant: after `ended` has returned, no process that the container started is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from posttrain.engine import logs, probes
from posttrain.engine.isolation import Driver, Launch, Process, joined, mapped, options_for, wrapped
from posttrain.engine.kubelet import declared_paths, is_main, layout_of, process_of, termination_log_of
from posttrain.engine.paths import clean
from posttrain.engine.podspec import PodSpec
from posttrain.engine.sandbox import Sandbox
from posttrain.engine.verdict import EXECUTOR, Ended
from posttrain.isolation import cgroups, processes, waiting

JSON = dict[str, Any]
_WORD_BYTES = 4096  # of a container's last word, as the kubelet keeps


class Container:
    """`changed` is called when the container's readiness has changed."""

    def __init__(self, spec: PodSpec, declared: JSON, driver: Driver, changed: Callable[[], None]):
        self.spec, self.declared, self.name = spec, declared, declared["name"]
        self.layout = layout_of(spec, declared)
        self.ready = "readinessProbe" not in declared and "startupProbe" not in declared
        self.capture = is_main(spec, declared) and spec.capture_result
        self.captured: logs.Capture | None = None
        self.pid: int | None = None
        self.exited: asyncio.Future[int]
        self._driver, self._changed = driver, changed
        self._word = ""  # why it could not be started
        self._launch: Launch
        self._sandbox: Sandbox | None = None
        self._memory: cgroups.Group | None = None
        self._tasks: list[asyncio.Task] = []
        self._reader = self._log = -1

    def prepare(self) -> None:
        """Make the container's own directories; inputs may then be put into them."""
        for path in ("/tmp", "/var/tmp", *(("/srv",) if self._driver == "paths" else ())):
            os.makedirs(self.layout.root + path, exist_ok=True)
        open(termination_log_of(self.spec, self.name), "w").close()
        for mount in self.layout.mounts:
            if not os.path.exists(mount.host):
                os.makedirs(mount.host)  # a subPath that nobody has made yet
        for path in declared_paths(self.spec) if is_main(self.spec, self.declared) else ():
            os.makedirs(os.path.dirname(self.layout.find(path)), exist_ok=True)

    def start(self) -> None:
        """Start the command. One that cannot be started ends at once with the executor's code and a word on why."""
        process = process_of(self.spec, self.declared, self.layout)
        missing = _not_found(process)
        if missing:
            self._fail(f"failed to find name in PATH: {missing}")
            return
        limit = self.spec.memory_limits.get(self.name)
        if limit is not None:
            self._memory = cgroups.Group(
                f"{memory_prefix(self.spec.directory)}{self.name}", cgroups.Limits(memory=limit, together=True)
            )
        self._log = logs.open_for_writing(self.spec.directory, self.name)
        stdout = self._capture_into(self._log) if self.capture else self._log
        try:
            popen = self._spawn(process, stdout)
        except OSError as problem:
            self._fail(f"cannot be started: {problem.strerror}")
            return
        finally:
            if stdout != self._log:
                os.close(stdout)
        self.pid, self.exited = popen.pid, waiting.exit_of(popen)
        self._tasks.append(asyncio.ensure_future(self._watch_health()))

    async def ended(self) -> Ended:
        """Wait for the exit, and clear away all that the container was."""
        code = await asyncio.shield(self.exited)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sandbox is not None:
            # bubblewrap tells the command's exit before the container's last processes are gone with their pid 1
            await waiting.adopted_has_ended(await self._sandbox.first)
        elif self._driver == "paths":
            processes.sweep_below(os.getpid(), f"{self.spec.directory}/{self.name}")
        if self._reader >= 0:
            self._copy()
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
        if self._log >= 0:
            os.close(self._log)
        self._reader = self._log = -1
        out_of_memory = False
        if self._memory is not None:
            out_of_memory = code == 137 and self._memory.oom_kills() > 0
            self._memory.remove()
        if self._sandbox is not None and code == 1 and not await self._sandbox.made:
            code, self._word = EXECUTOR, logs.last_line(self.spec.directory, self.name)
        return Ended(self.name, code, out_of_memory, self._word or self._last_word())

    async def end(self, grace: float) -> Ended:
        """SIGTERM to the container's processes, SIGKILL after `grace` seconds."""
        if grace > 0 and not self.exited.done():
            await self.signal(signal.SIGTERM)
            await asyncio.wait([self.exited], timeout=grace)
        await self.signal(signal.SIGKILL)
        return await self.ended()

    async def signal(self, number: signal.Signals) -> None:
        """SIGKILL reaches every process, any other signal the group of the container's command."""
        if self.exited.done() or self.pid is None:
            return
        if self._sandbox is None:
            processes.send(self.pid, number, group=True)
            return
        first = await self._sandbox.first
        if first and number is not signal.SIGKILL:
            while not processes.children(first) and not self.exited.done():
                await asyncio.sleep(0.005)  # bubblewrap is still making the container
        processes.send(first or self.pid, number, group=number is not signal.SIGKILL)

    async def run(self, command: list[str], limit: float) -> bool:
        """A command in the container: did it end with 0 within `limit` seconds?"""
        process = process_of(self.spec, self.declared, self.layout, command)
        keep: tuple[int, ...] = ()
        try:
            if self._sandbox is None:
                launch = mapped(process)
            else:
                launch, keep = joined(process, self._sandbox.options, await self._sandbox.first)
            popen = self._popen(launch, subprocess.DEVNULL, subprocess.DEVNULL, keep)
        except OSError:
            return False
        finally:
            for handle in keep:
                os.close(handle)
        exited = waiting.exit_of(popen)
        await asyncio.wait([exited], timeout=limit)
        if not exited.done():
            processes.send(popen.pid, signal.SIGKILL, group=True)
        return await exited == 0

    def _fail(self, word: str) -> None:
        self.exited = asyncio.get_running_loop().create_future()
        self.exited.set_result(EXECUTOR)
        self._word = word

    def _spawn(self, process: Process, stdout: int) -> subprocess.Popen:
        if self._driver == "paths":
            return self._popen(mapped(process), stdout, self._log, ())
        self._sandbox = Sandbox(options_for(self.layout, process.working_directory))
        with self._sandbox.reporting() as report:
            options = ["--json-status-fd", str(report), *self._sandbox.options]
            return self._popen(wrapped(process, options), stdout, self._log, (report,))

    def _popen(self, launch: Launch, stdout: int, stderr: int, keep: tuple[int, ...]) -> subprocess.Popen:
        # Only without a preexec_fn does subprocess use vfork, which halves what a pod costs.
        join = self._memory.join if self._memory is not None else None
        with processes.offered_to_the_oom_killer():
            return subprocess.Popen(
                launch.argv, env=launch.environment, cwd=launch.directory, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, pass_fds=keep, start_new_session=True, preexec_fn=join,
            )  # fmt: skip

    def _capture_into(self, log: int) -> int:
        """The end of a pipe to write to; what comes through it goes into the log, and its end is kept."""
        self._reader, writer = os.pipe2(os.O_CLOEXEC)
        self.captured = logs.Capture(log)
        os.set_blocking(self._reader, False)
        asyncio.get_running_loop().add_reader(self._reader, self._copy)
        return writer

    def _copy(self) -> None:
        assert self.captured is not None
        while True:
            try:
                data = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._reader)
                return
            self.captured.feed(data)

    async def _watch_health(self) -> None:
        """Ask the probes; a container that fails its startup or liveness probe is ended."""
        ports = {p["name"]: int(p["containerPort"]) for p in self.declared.get("ports") or [] if p.get("name")}

        def ask(name: str) -> probes.Answers:
            return probes.watch(self.declared[name], self.spec.ip, ports, self.run)

        if "startupProbe" in self.declared and not await anext(ask("startupProbe")):
            await self._end_unhealthy()
            return
        if "livenessProbe" in self.declared:
            self._tasks.append(asyncio.ensure_future(self._watch_life(ask("livenessProbe"))))
        if "readinessProbe" not in self.declared:
            self._set_ready(True)
            return
        async for answer in ask("readinessProbe"):
            self._set_ready(answer)

    async def _watch_life(self, answers: probes.Answers) -> None:
        async for alive in answers:
            if not alive:
                await self._end_unhealthy()
                return

    async def _end_unhealthy(self) -> None:
        await self.signal(signal.SIGTERM)
        await asyncio.wait([self.exited], timeout=self.spec.grace_seconds)
        await self.signal(signal.SIGKILL)

    def _set_ready(self, answer: bool) -> None:
        if self.ready is not answer:
            self.ready = answer
            self._changed()

    def _last_word(self) -> str:
        try:
            with open(termination_log_of(self.spec, self.name), "rb") as source:
                return source.read(_WORD_BYTES).decode(errors="replace")
        except OSError:
            return ""


def memory_prefix(directory: str) -> str:
    """How the names of the pod's memory groups begin."""
    return f"posttrain-{hashlib.sha256(directory.encode()).hexdigest()[:16]}-"


def _not_found(process: Process) -> str:
    """What Go's exec.LookPath says of a command that the container cannot see; "" where it can."""
    name, layout = process.argv[0], process.layout
    if "/" in name:
        host = layout.find(clean(posixpath.join(process.working_directory, name)))
        if not os.path.exists(host):
            return f'exec: "{name}": stat {name}: no such file or directory'
        return "" if os.access(host, os.X_OK) and not os.path.isdir(host) else f'exec: "{name}": permission denied'
    for directory in process.environment.get("PATH", "").split(":"):
        host = layout.find(clean(posixpath.join(directory or process.working_directory, name)))
        if os.path.isfile(host) and os.access(host, os.X_OK):
            return ""
    return f'exec: "{name}": executable file not found in $PATH'
