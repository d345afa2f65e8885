"""A sandbox of this machine, as the worker holds it.

Invariants: nothing of a sandbox is on a disk, but the copy of its root where the kernel makes no overlay; its
processes and mounts end with its pid 1, its groups with the launcher's report of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from posttrain.errors import UserError
from posttrain.isolation import bubblewrap, seccomp
from posttrain.sandbox import layout
from posttrain.sandbox.forwarding import Forwarding
from posttrain.sandbox.line import Event, Line, memory
from posttrain.sandbox.protocol import Outcome, Output, Result, SandboxGone, Snapshot
from posttrain.sandbox.running import Running
from posttrain.sandbox.spec import WORKSPACE, Network, SandboxSpec
from posttrain.sandbox.transfer import TREE_BYTES, copy_root, packed, unpack_regular

_START_SECONDS = 30.0
_FIRST = 11  # the launcher's own report comes before


class LocalSandbox:
    """`alive` is the driver's set of those that have been started and not stopped."""

    def __init__(self, line: Line, spec: SandboxSpec, *, gateway: str, alive: set[LocalSandbox]):
        self.spec, self.id = spec, line.new_id()
        self._line, self._gateway, self._alive = line, gateway, alive
        self._limits = layout.resource_limits(spec)
        self._environment = layout.environment(spec)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._hold = -1  # the worker's end of pid 1's stdin
        self._deadline: asyncio.TimerHandle | None = None
        self._forwarding: Forwarding | None = None
        self._running: set[Running] = set()
        self._end: Outcome | None = None  # why it was ended by us
        self._asked = False  # whether the launcher knows of it, and will tell its end
        self._copy = ""  # of the root, where the kernel makes no overlay

    # -- life

    async def start(self) -> None:
        begun = time.monotonic()
        self._alive.add(self)
        said = os.memfd_create("stderr", os.MFD_CLOEXEC)
        stdin, self._hold = os.pipe2(os.O_CLOEXEC)
        handles = [stdin, said]
        try:
            if self.spec.root and overlay_refused():
                self._copy = os.path.join(tempfile.gettempdir(), f"{self._line.prefix}{self.id}")
                await copy_root(self.spec.root, self._copy)
            plan = layout.plan(self.spec, first=_FIRST, copy=self._copy)
            handles += [memory(text, "text") for text in plan.texts]
            argv = ["bwrap", "--info-fd", str(_FIRST - 1), "--seccomp", str(_FIRST + len(handles) - 2), *plan.arguments]
            handles.append(memory(seccomp.program(), "seccomp"))
            request = {"do": "start", "id": self.id, "argv": argv, "limits": layout.group_limits(self.spec)}
            # Not the calls' limits: outside of its namespace the user's other processes would count towards them.
            self._line.ask(request | {"rlimits": {"RLIMIT_CORE": 0}}, handles, self._hear)
            self._asked = True
            either: list[asyncio.Future[Any]] = [self._ready, self._gone]
            await asyncio.wait(either, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.done():
                why = os.pread(said, 1 << 12, 0).decode(errors="replace").strip().replace("\n", "; ")
                await self.stop()
                raise SandboxGone(f"cannot be started: {why or self._gone.result().get('detail') or 'no answer'}")
            await self._furnish()
        except BaseException:
            await self.stop()
            raise
        finally:
            for handle in handles:
                os.close(handle)
        left = self.spec.wall_seconds - (time.monotonic() - begun)
        self._deadline = asyncio.get_running_loop().call_later(left, self._run_out)

    async def _furnish(self) -> None:
        if self.spec.network.mode is not Network.none:
            self._forwarding = Forwarding(self.spec.network, self._gateway)
            await self._forwarding.open(await self._listen(self._forwarding.port))
        for path, source in self.spec.files.items():
            await self.put(Path(source), path)

    async def stop(self) -> None:
        if self._end is None:
            self._end = Outcome.cancelled
        self._give_up()
        if self._asked:
            await asyncio.shield(self._gone)
        self._let_go()
        for running in list(self._running):
            await running.wait()
        if self._forwarding is not None:
            await self._forwarding.close()
        if self._copy:
            await asyncio.to_thread(shutil.rmtree, self._copy, ignore_errors=True)
        self._alive.discard(self)

    def _give_up(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._asked and not self._gone.done():
            with contextlib.suppress(SandboxGone):
                self._line.ask({"do": "stop", "id": self.id, "sandbox": self.id})

    def _run_out(self) -> None:
        if self.end is None:
            self._end = Outcome.timed_out
            self._give_up()

    def _hear(self, event: Event) -> None:
        if event["event"] == "ready":
            if not self._ready.done():
                self._ready.set_result(None)
            return
        self._line.forget(self.id)
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._gone.done():
            self._gone.set_result(event)
            self._let_go()

    def _let_go(self) -> None:
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- calls

    async def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        workdir: str | None = None,
        on_output: Output | None = None,
    ) -> Result:
        running = await self._spawn(command, timeout, environment, workdir, on_output, stdin)
        try:
            return await running.wait()
        except asyncio.CancelledError:
            await running.kill()
            await running.wait()
            raise

    async def spawn(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        workdir: str | None = None,
    ) -> Running:
        return await self._spawn(command, timeout, environment, workdir, None, None)

    async def _spawn(
        self,
        command: Sequence[str],
        timeout: float | None,
        environment: Mapping[str, str] | None,
        workdir: str | None,
        on_output: Output | None,
        stdin: bytes | None,
    ) -> Running:
        self._check()
        if not command or not all(isinstance(each, str) and "\0" not in each for each in command):
            raise UserError("is no command", value=command, remedy="give a list of texts, the program first")
        running = Running(self, limit=self.spec.output_bytes, timeout=timeout, on_output=on_output, stdin=stdin)
        request = {
            "do": "call",
            "id": running.id,
            "sandbox": self.id,
            "command": list(command),
            "environment": self._environment | dict(environment or {}),
            "workdir": workdir or self.spec.workdir,
            "rlimits": self._limits,
        }
        self._running.add(running)
        try:
            running.start(self._line, request)
        except BaseException:
            self._running.discard(running)
            raise
        return running

    def call_ended(self, running: Running) -> None:
        self._running.discard(running)

    async def full(self) -> list[str]:
        """Which of the sandbox's own file systems have no room left."""
        try:
            return json.loads(await self._act("space", paths=[WORKSPACE, "/tmp", "/dev/shm"]))
        except (SandboxGone, OSError):
            return []

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def end(self) -> tuple[Outcome, str] | None:
        """Why the sandbox has ended or is about to; None while it lives."""
        if self._end is Outcome.timed_out:
            return Outcome.timed_out, f"the sandbox's {self.spec.wall_seconds:g} s have run out"
        if self._end is not None:
            return self._end, "the sandbox was stopped"
        if self._gone.done():
            event = self._gone.result()
            if event.get("oom"):
                return Outcome.out_of_memory, f"more than {self.spec.memory} were asked for"
            return Outcome.infrastructure_error, event.get("detail") or "the sandbox has ended by itself"
        return None

    def signal(self, call: str, number: int, *, below: bool) -> None:
        with contextlib.suppress(SandboxGone):
            request = {"do": "signal", "id": self.id, "sandbox": self.id, "call": call}
            self._line.ask(request | {"number": number, "below": below})

    def _check(self) -> None:
        if (end := self.end) is not None:
            raise SandboxGone(end[1], end[0])
        if not self._ready.done():
            raise SandboxGone("the sandbox has not been started")

    # -- files

    async def read_file(self, path: str, *, limit: int = 64 << 20) -> bytes:
        return await self._act("read", path=layout.in_sandbox(path, self.spec), limit=limit)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._act("write", data, path=layout.in_sandbox(path, self.spec), mode=mode)

    async def put(self, source: Path, path: str) -> None:
        target = layout.in_sandbox(path, self.spec)
        if source.is_dir():
            await self._act("unpack", await asyncio.to_thread(packed, source), path=target)
        else:
            data = await asyncio.to_thread(source.read_bytes)
            await self.write_file(target, data, mode=source.stat().st_mode & 0o777)

    async def collect(
        self, target: Path, patterns: Sequence[str] | None = None, *, limit: int = 256 << 20
    ) -> list[str]:
        wanted = list(self.spec.collect if patterns is None else patterns)
        tree = await self._act("pack", path=WORKSPACE, patterns=wanted, links=False, limit=limit)
        return await asyncio.to_thread(unpack_regular, tree, target, limit)

    async def snapshot(self, path: Path) -> Snapshot:
        with open(path, "xb") as out:
            try:
                await self._act("pack", out=out.fileno(), path=WORKSPACE, patterns=None, links=True, limit=TREE_BYTES)
            except BaseException:
                path.unlink()
                raise
        with open(path, "rb") as written:
            digest = await asyncio.to_thread(hashlib.file_digest, written, "sha256")
        return Snapshot(path, digest.hexdigest())

    async def restore(self, snapshot: Snapshot) -> None:
        with open(snapshot.path, "rb") as source:
            digest = await asyncio.to_thread(hashlib.file_digest, source, "sha256")
            if digest.hexdigest() != snapshot.digest:
                raise UserError("is not what was written", field="snapshot", value=str(snapshot.path))
            source.seek(0)
            await self._act("unpack", source.fileno(), path=WORKSPACE)

    async def clone(self) -> LocalSandbox:
        tree = await self._act("pack", path=WORKSPACE, patterns=None, links=True, limit=TREE_BYTES)
        other = LocalSandbox(self._line, self.spec, gateway=self._gateway, alive=self._alive)
        await other.start()
        try:
            await other._act("unpack", tree, path=WORKSPACE)
        except BaseException:
            await other.stop()
            raise
        return other

    async def _listen(self, port: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await self._act("listen", further=[theirs.fileno()], port=port)
            _, handles, *_ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=handles[0])

    async def _act(
        self,
        function: str,
        given: bytes | int = b"",
        *,
        out: int | None = None,
        further: Sequence[int] = (),
        **arguments: Any,
    ) -> bytes:
        """One of `inside`'s functions, and what it wrote (where `out` is none). Raises as a file system does."""
        self._check()
        id = self._line.new_id()
        ended: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        stdin = given if isinstance(given, int) else memory(given, "in")
        stdout = os.memfd_create("out", os.MFD_CLOEXEC) if out is None else out
        stderr = os.memfd_create("err", os.MFD_CLOEXEC)
        request = {"do": "call", "id": id, "sandbox": self.id, "function": function, "rlimits": {"RLIMIT_CORE": 0}}
        try:
            self._line.ask(request | arguments, [stdin, stdout, stderr, *further], ended.set_result)
            event = await ended
            if event["event"] != "ended" or event["code"] not in (0, 1):
                end = self.end or (Outcome.infrastructure_error, event.get("detail") or _text(stderr) or "killed")
                raise SandboxGone(end[1], end[0])
            if event["code"] == 1:
                raise _error(_text(stderr))
            return b"" if out is not None else os.pread(stdout, os.fstat(stdout).st_size, 0)
        finally:
            self._line.forget(id)
            os.close(stderr)
            if not isinstance(given, int):
                os.close(stdin)
            if out is None:
                os.close(stdout)


def overlay_refused() -> str:
    """Why the kernel makes no overlay here for a process without privileges; "" where it does."""
    return bubblewrap.refused(("--unshare-user", "--overlay-src", "/usr", "--tmp-overlay", "/usr"))


def _text(handle: int) -> str:
    return os.pread(handle, 1 << 14, 0).decode(errors="replace").strip()


def _error(said: str) -> Exception:
    error = json.loads(said)
    if error["errno"] is None:
        return UserError(error["message"], field="sandbox", remedy="take less, or raise the limit")
    return OSError(error["errno"], error["message"], error["path"])
