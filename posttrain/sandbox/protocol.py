"""What every driver offers: a sandbox is started, runs commands, holds files, is copied, is stopped.

Invariants: how a command ended is one of a closed set and never an exception; an exception is a mistake
of the caller (UserError, FileNotFoundError, …) or the sandbox's own end (SandboxGone). After `stop` has
returned nothing of the sandbox is left: no process, mount, cgroup or file. Files live as long as the
sandbox; what a command leaves running lives as long as the sandbox too, unless the command runs out of
time: then all that it started goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, Self

from posttrain.sandbox.spec import SandboxSpec

Stream = Literal["stdout", "stderr"]
Output = Callable[[Stream, bytes], None]


class Outcome(StrEnum):
    """How a call ended. `failed` is the program's own doing; an infrastructure error says nothing about the program."""

    succeeded = "succeeded"
    failed = "failed"
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    over_quota = "over_quota"
    cancelled = "cancelled"
    infrastructure_error = "infrastructure_error"


@dataclass(frozen=True)
class Result:
    """`code` is the exit code, 128 + n for signal n; None where the command did not end by itself.

    `stdout` and `stderr` hold what came before the stream's limit (spec.output); `detail` says in words why a
    call ended as anything but `succeeded`.
    """

    outcome: Outcome
    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    detail: str = ""

    @property
    def text(self) -> str:
        """stdout as text, whatever its bytes."""
        return self.stdout.decode(errors="replace")


@dataclass(frozen=True)
class Snapshot:
    """A copy of a workspace: a tar file of this machine and its digest (SHA-256)."""

    path: Path
    digest: str


class SandboxGone(Exception):
    """The sandbox has ended, or could not be made. `outcome` says which way."""

    def __init__(self, detail: str, outcome: Outcome = Outcome.infrastructure_error):
        self.outcome, self.detail = outcome, detail
        super().__init__(detail)


class Process(Protocol):
    """A command that runs in a sandbox."""

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it writes, as it comes; ends with the command. One reader."""
        ...

    async def write(self, data: bytes) -> None:
        """To its stdin."""
        ...

    async def close_stdin(self) -> None: ...

    async def interrupt(self, *, hard: bool = False) -> None:
        """SIGINT to the command and all that it started; `hard`: SIGKILL to all that it started, not to itself."""
        ...

    async def kill(self) -> None:
        """End the command and all that it started, daemons too."""
        ...

    async def wait(self) -> Result:
        """Its end. The streams of the result are empty where `output` has been read."""
        ...


class Sandbox(Protocol):
    """`async with sandbox:` starts and stops it."""

    spec: SandboxSpec
    id: str

    @property
    def ended(self) -> bool:
        """Whether it has ended, by whoever's doing."""
        ...

    async def start(self) -> None:
        """Raises SandboxGone where it cannot be made, UserError where the spec cannot be had here."""
        ...

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
        """Run `command` to its end, `timeout` seconds at most; `on_output` is given each piece as it comes."""
        ...

    async def spawn(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        workdir: str | None = None,
    ) -> Process:
        """Start `command` with a stdin that stays open; what it writes is not limited while `output` is read."""
        ...

    async def read_file(self, path: str, *, limit: int = 64 << 20) -> bytes:
        """A regular file's bytes. FileNotFoundError, PermissionError, or UserError over `limit` bytes."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Make or replace a file, with the directories above it. OSError as the sandbox's user would meet it."""
        ...

    async def put(self, source: Path, path: str) -> None:
        """Copy a file or directory of this machine to `path`."""
        ...

    async def collect(
        self, target: Path, patterns: Sequence[str] | None = None, *, limit: int = 256 << 20
    ) -> list[str]:
        """Copy the workspace's regular files that match (spec.collect by default) below `target`; their names."""
        ...

    async def snapshot(self, path: Path) -> Snapshot:
        """Write the workspace into the tar file `path`."""
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Lay a snapshot over the workspace."""
        ...

    async def clone(self) -> Self:
        """A further sandbox of the same spec, started, with a copy of the workspace."""
        ...

    async def stop(self) -> None:
        """End it. Nothing happens where it has ended; what still runs ends as `cancelled`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Driver(Protocol):
    """Makes sandboxes: `bubblewrap` on this machine, `kubernetes` in a cluster."""

    def sandbox(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox that has not been started."""
        ...

    async def close(self) -> None:
        """Stop every sandbox that it made."""
        ...
