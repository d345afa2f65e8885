"""What a sandbox task asks for, and how it is carried out.

Invariants: a task chooses among the specs of the service and cannot widen one; how it ends is its call's outcome,
and what it wrote is kept with every outcome; a task that is over (cancelled, out of time, given to another) has its
sandbox stopped.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from posttrain.errors import UserError
from posttrain.json_text import Body
from posttrain.rollout.tasks.worker import Ended, Job
from posttrain.sandbox import Outcome, Result, Sandbox, SandboxGone, SandboxSpec
from posttrain.sandbox.pool import WarmPool

T = TypeVar("T")
_LOOK_SECONDS = 0.2  # how often a task under way is looked at for whether it is over
_MARGIN_SECONDS = 1.0  # a call ends this long before its attempt's deadline, so that its end can be told


class SandboxTask(Body):
    """The payload of a task of the kind `sandbox`. `files` are laid into the workspace before the command runs,
    path by content; `collect` names the files that are given back."""

    command: list[str] = Field(min_length=1)
    spec: str = "default"
    stdin: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    collect: list[str] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    timeout: float | None = Field(default=None, gt=0)


class Loop:
    """An event loop in a thread of its own, for the workers' threads to hand work to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandboxes", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Executor:
    """The handler of a `Worker`: called in its threads, works in `loop`."""

    def __init__(self, loop: Loop, pool: WarmPool, specs: Mapping[str, SandboxSpec], *, result_bytes: int):
        self._loop, self._pool, self._specs, self._result_bytes = loop, pool, specs, result_bytes

    def __call__(self, job: Job) -> dict[str, Any]:
        try:
            task = SandboxTask.model_validate(job.lease.payload)
            spec = self._specs[task.spec]
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(map(str, ("payload", *first["loc"])))
            raise Ended(Outcome.failed, f"{where}: {first['msg']}") from None
        except KeyError:
            known = ", ".join(sorted(self._specs))
            raise Ended(Outcome.failed, f"payload.spec: there is no {task.spec!r} here; known: {known}") from None
        left = job.seconds_left
        seconds = task.timeout if left is None else min(task.timeout or left, max(0.1, left - _MARGIN_SECONDS))
        future = self._loop.submit(self._carry_out(task, spec, seconds))
        while not future.done():
            concurrent.futures.wait([future], timeout=_LOOK_SECONDS)
            if job.over.is_set():
                future.cancel()
                raise Ended(Outcome.cancelled, "the attempt is over")
        return future.result()

    async def _carry_out(self, task: SandboxTask, spec: SandboxSpec, seconds: float | None) -> dict[str, Any]:
        try:
            async with self._pool.sandbox(spec) as sandbox:
                for path, content in task.files.items():
                    await sandbox.write_file(path, content.encode())
                ended = await sandbox.exec(
                    task.command, stdin=task.stdin.encode(), timeout=seconds, environment=task.environment
                )
                files = await self._take(sandbox, task) if ended.code is not None else {}
        except SandboxGone as gone:
            raise Ended(gone.outcome, gone.detail) from None
        except (UserError, OSError, UnicodeEncodeError) as problem:
            raise Ended(Outcome.failed, f"payload: {problem}") from None
        told = _told(ended, files)
        if ended.outcome is not Outcome.succeeded:
            raise Ended(ended.outcome, ended.detail, told)
        return told

    async def _take(self, sandbox: Sandbox, task: SandboxTask) -> dict[str, str]:
        if not task.collect:
            return {}
        with tempfile.TemporaryDirectory(prefix="posttrain-sandbox-") as place:
            names = await sandbox.collect(Path(place), task.collect, limit=self._result_bytes)
            return {name: Path(place, name).read_text(errors="replace") for name in names}


def _told(ended: Result, files: dict[str, str]) -> dict[str, Any]:
    return {
        "code": ended.code,
        "stdout": ended.stdout.decode(errors="replace"),
        "stderr": ended.stderr.decode(errors="replace"),
        "seconds": ended.seconds,
        "files": files,
    }
