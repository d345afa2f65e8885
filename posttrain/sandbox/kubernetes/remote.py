"""A sandbox of a cluster, as the worker holds it. Files go through commands of its image: sh, cat, mkdir, mv, tar.

Invariant: the claim carries the sandbox's deadline, so the cluster ends it whatever becomes of the worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from k8s_agent_sandbox.exceptions import SandboxError
from kubernetes_asyncio.client import ApiException

from posttrain.errors import UserError
from posttrain.sandbox import layout
from posttrain.sandbox.kubernetes.manifests import PART_OF, name_of
from posttrain.sandbox.kubernetes.process import RemoteProcess
from posttrain.sandbox.protocol import Outcome, Output, Result, SandboxGone, Snapshot
from posttrain.sandbox.spec import WORKSPACE, Network, SandboxSpec
from posttrain.sandbox.transfer import TREE_BYTES, packed, unpack_regular

if TYPE_CHECKING:
    from posttrain.sandbox.kubernetes.driver import KubernetesDriver

_READ = '[ -e "$1" ] || exit 44; [ -f "$1" ] || exit 45; head -c "$2" -- "$1"'
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1.$3" && chmod "$2" -- "$1.$3" && mv -f -- "$1.$3" "$1"'
_SMALL = 1 << 16


class RemoteSandbox:
    def __init__(self, driver: KubernetesDriver, spec: SandboxSpec, number: int):
        self.spec, self.id = spec, f"{name_of(spec)}-{number}"
        self._driver = driver
        self._handle: Any = None
        self._end: tuple[Outcome, str] | None = None
        self._deadline = math.inf
        self._running: set[RemoteProcess] = set()

    async def start(self) -> None:
        settings = self._driver.settings
        await self._driver.provide(self.spec)
        self._deadline = time.monotonic() + self.spec.wall_seconds
        try:
            self._handle = await self._driver.client.create_sandbox(
                name_of(self.spec),
                namespace=settings.namespace,
                sandbox_ready_timeout=settings.ready_seconds,
                labels=dict(PART_OF),
                shutdown_after_seconds=math.ceil(self.spec.wall_seconds),
            )
        except (SandboxError, TimeoutError, ApiException) as problem:
            raise SandboxGone(f"cannot be had from the cluster: {_one_line(problem)}") from None
        self._driver.alive.add(self)
        try:
            for path, source in self.spec.files.items():
                await self.put(Path(source), path)
        except BaseException:
            await self.stop()
            raise

    @property
    def ended(self) -> bool:
        return self._handle is None or self._end is not None or time.monotonic() >= self._deadline

    async def stop(self) -> None:
        self._end = self._end or (Outcome.cancelled, "the sandbox was stopped")
        for running in list(self._running):
            await running.kill()
            await running.wait()
        if self._handle is not None:
            try:
                await self._handle.terminate()
            except ApiException as problem:
                raise SandboxGone(f"its claim could not be deleted: {_one_line(problem)}") from None
        self._driver.alive.discard(self)

    async def why_ended(self) -> tuple[Outcome, str] | None:
        """What the cluster says of its pod; None where it still runs."""
        if time.monotonic() >= self._deadline:
            return Outcome.timed_out, f"the sandbox's {self.spec.wall_seconds:g} s have run out"
        if self._end is not None:
            return self._end
        return await self._driver.end_of_pod(await self._handle.get_pod_name(), self.spec)

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
            raise

    async def spawn(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        workdir: str | None = None,
    ) -> RemoteProcess:
        return await self._spawn(command, timeout, environment, workdir, None, None)

    async def _spawn(
        self,
        command: Sequence[str],
        timeout: float | None,
        environment: Mapping[str, str] | None,
        workdir: str | None,
        on_output: Output | None,
        stdin: bytes | None,
        limit: int | None = None,
    ) -> RemoteProcess:
        if self._handle is None:
            raise SandboxGone("the sandbox has not been started")
        if self._end is not None or time.monotonic() >= self._deadline:
            outcome, detail = await self.why_ended() or (Outcome.infrastructure_error, "it has ended")
            raise SandboxGone(detail, outcome)
        left = self._deadline - time.monotonic()
        running = RemoteProcess(
            self,
            timeout=min(timeout if timeout is not None else math.inf, left),
            on_output=on_output,
            stdin=stdin,
            limit=self.spec.output_bytes if limit is None else limit,
        )
        try:
            await self._handle.connector.connect()
            channel = await self._handle.connector.grpc_channel()
        except (SandboxError, ApiException) as problem:
            raise SandboxGone(f"cannot be reached: {_one_line(problem)}") from None
        given = dict(self.spec.environment) | dict(environment or {})
        if self.spec.network.mode is Network.gateway:
            given.setdefault("POSTTRAIN_GATEWAY", f"http://{self._driver.settings.gateway}")
        self._running.add(running)
        running.start(channel, command, given, workdir or self.spec.workdir)
        return running

    def call_ended(self, running: RemoteProcess) -> None:
        self._running.discard(running)

    # -- files

    async def read_file(self, path: str, *, limit: int = 64 << 20) -> bytes:
        path = layout.in_sandbox(path, self.spec)
        result = await self._tool(["sh", "-c", _READ, "sh", path, str(limit + 1)], limit=limit + 1)
        if result.code == 44:
            raise FileNotFoundError(2, "No such file or directory", path)
        if result.code == 45:
            raise OSError(22, "not a regular file", path)
        _check(result, path)
        if len(result.stdout) > limit:
            remedy = "take less, or raise the limit"
            raise UserError(f"{path} has more than {limit} bytes", field="sandbox", remedy=remedy)
        return result.stdout

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        path = layout.in_sandbox(path, self.spec)
        command = ["sh", "-c", _WRITE, "sh", path, f"{mode:o}", str(time.monotonic_ns())]
        _check(await self._tool(command, stdin=data), path)

    async def put(self, source: Path, path: str) -> None:
        if not source.is_dir():
            data = await asyncio.to_thread(source.read_bytes)
            await self.write_file(path, data, mode=source.stat().st_mode & 0o777)
            return
        await self._unpack(await asyncio.to_thread(packed, source), layout.in_sandbox(path, self.spec))

    async def collect(
        self, target: Path, patterns: Sequence[str] | None = None, *, limit: int = 256 << 20
    ) -> list[str]:
        wanted = list(self.spec.collect if patterns is None else patterns)

        def matches(name: str) -> bool:
            return any(fnmatchcase(name, each) or name.startswith(each.rstrip("/") + "/") for each in wanted)

        return await asyncio.to_thread(unpack_regular, await self._pack(), target, limit, matches)

    async def snapshot(self, path: Path) -> Snapshot:
        tree = await self._pack()
        with open(path, "xb") as out:
            out.write(tree)
        return Snapshot(path, hashlib.sha256(tree).hexdigest())

    async def restore(self, snapshot: Snapshot) -> None:
        tree = await asyncio.to_thread(snapshot.path.read_bytes)
        if hashlib.sha256(tree).hexdigest() != snapshot.digest:
            raise UserError("is not what was written", field="snapshot", value=str(snapshot.path))
        await self._unpack(tree, WORKSPACE)

    async def clone(self) -> RemoteSandbox:
        tree = await self._pack()
        other = self._driver.sandbox(self.spec)
        await other.start()
        try:
            await other._unpack(tree, WORKSPACE)
        except BaseException:
            await other.stop()
            raise
        return other

    async def _pack(self) -> bytes:
        result = await self._tool(["tar", "-C", WORKSPACE, "-cf", "-", "."], limit=TREE_BYTES)
        _check(result, WORKSPACE)
        return result.stdout

    async def _unpack(self, tree: bytes, path: str) -> None:
        script = 'mkdir -p -- "$1" && tar -C "$1" -xf -'
        _check(await self._tool(["sh", "-c", script, "sh", path], stdin=tree), path)

    async def _tool(self, command: Sequence[str], *, stdin: bytes = b"", limit: int = _SMALL) -> Result:
        running = await self._spawn(command, None, None, "/", None, stdin, limit)
        result = await running.wait()
        if result.outcome not in (Outcome.succeeded, Outcome.failed):
            raise SandboxGone(result.detail, result.outcome)
        return result


def _check(result: Result, path: str) -> None:
    if result.outcome is not Outcome.succeeded:
        said = (result.stderr.decode(errors="replace").strip().splitlines() or [result.detail])[-1]
        raise OSError(5, said, path)


def _one_line(problem: BaseException) -> str:
    if isinstance(problem, ApiException):
        return f"{problem.status} {problem.reason}"
    return " ".join(str(problem).split()) or type(problem).__name__
