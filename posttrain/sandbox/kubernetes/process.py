"""A command in a cluster's sandbox, over sandboxd's ProcessService (gRPC).

Invariant: a call that breaks off is an infrastructure error and never the program's own end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from posttrain.sandbox.protocol import Outcome, Output, Result, Stream

if TYPE_CHECKING:
    from posttrain.sandbox.kubernetes.remote import RemoteSandbox

_CHUNK = 1 << 20  # gRPC takes messages of up to 4 MiB


class RemoteProcess:
    """Started with `start`; `stdin` None leaves the command's open."""

    def __init__(
        self,
        sandbox: RemoteSandbox,
        *,
        timeout: float,
        on_output: Output | None,
        stdin: bytes | None,
        limit: int,
    ):
        self._sandbox, self._timeout, self._on_output, self._given = sandbox, timeout, on_output, stdin
        self._limit = limit
        self._kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._pieces: asyncio.Queue[tuple[Stream, bytes] | None] | None = None
        self._cut: tuple[Outcome, str] | None = None
        self._number: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Result] | None = None
        self._stub: Any = None
        self._messages: Any = None

    def start(self, channel: Any, command: Sequence[str], environment: Mapping[str, str], workdir: str) -> None:
        self._messages, services = stubs()
        self._stub = services.ProcessServiceStub(channel)
        config = self._messages.ProcessConfig(command=command, env_vars=environment, cwd=workdir)
        events = self._stub.Start(self._messages.StartRequest(config=config))
        self._task = asyncio.create_task(self._follow(events))

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        self._pieces = asyncio.Queue()
        for stream, kept in self._kept.items():
            if kept:
                yield stream, bytes(kept)
                kept.clear()
        if self._task is not None and self._task.done():
            return
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), _CHUNK):
            await self._stdin(input=data[at : at + _CHUNK])

    async def close_stdin(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            await self._stdin(eof=self._messages.WriteStdinRequest().eof)

    async def interrupt(self, *, hard: bool = False) -> None:
        """sandboxd signals the command's group as a whole, so `hard` can only ask once more."""
        await self._signal("SIGNAL_SIGINT")

    async def kill(self) -> None:
        await self._cut_short(Outcome.cancelled, "it was ended by order")

    async def wait(self) -> Result:
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def _follow(self, events: Any) -> Result:
        begun, code = time.monotonic(), None
        timer = asyncio.create_task(self._run_out())
        feeding: asyncio.Task | None = None
        broken: Outcome | None = None
        detail = ""
        try:
            async for event in events:
                kind = event.WhichOneof("event")
                if kind == "init":
                    self._number.set_result(event.init.process_id)
                    feeding = asyncio.create_task(self._feed())
                elif kind == "exit":
                    code = event.exit.exit_code
                else:
                    await self._take(kind, getattr(event, kind))
        except grpc.aio.AioRpcError as problem:
            broken, detail = Outcome.infrastructure_error, f"the sandbox's runtime: {problem.details()}"
        finally:
            for task in (timer, feeding):
                if task is not None:
                    task.cancel()
            if not self._number.done():
                self._number.cancel()
        if code is None and broken is None:
            broken, detail = Outcome.infrastructure_error, "the sandbox's runtime told no end"
        outcome, code, detail = await self._judge(code, broken, detail)
        if self._pieces is not None:
            self._pieces.put_nowait(None)
        self._sandbox.call_ended(self)
        kept = self._kept
        return Result(outcome, code, bytes(kept["stdout"]), bytes(kept["stderr"]), time.monotonic() - begun, detail)

    async def _judge(self, code: int | None, broken: Outcome | None, detail: str) -> tuple[Outcome, int | None, str]:
        if self._cut is not None:
            return self._cut[0], None, self._cut[1]
        if code == 0:
            return Outcome.succeeded, 0, ""
        killed = broken is not None or code == 128 + signal.SIGKILL
        if killed and (end := await self._sandbox.why_ended()) is not None:
            return end[0], code, end[1]
        if broken is not None:
            return broken, None, detail
        assert code is not None
        return Outcome.failed, code, f"signal {code - 128}" if code > 128 else f"exit code {code}"

    async def _take(self, stream: Stream, data: bytes) -> None:
        if self._pieces is not None:
            self._pieces.put_nowait((stream, data))
            return
        room = self._limit - len(self._kept[stream])
        if piece := data[:room]:
            self._kept[stream] += piece
            if self._on_output is not None:
                self._on_output(stream, piece)
        if len(data) > room:
            await self._cut_short(Outcome.over_quota, f"{stream} is longer than {self._limit} bytes")

    async def _feed(self) -> None:
        if self._given is not None:
            with contextlib.suppress(BrokenPipeError):
                await self.write(self._given)
            await self.close_stdin()

    async def _run_out(self) -> None:
        await asyncio.sleep(self._timeout)
        await self._cut_short(Outcome.timed_out, f"it took longer than {self._timeout:g} s")

    async def _cut_short(self, outcome: Outcome, detail: str) -> None:
        if self._cut is None:
            self._cut = (outcome, detail)
            await self._signal("SIGNAL_SIGKILL")

    async def _signal(self, name: str) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):  # it has ended meanwhile
            request = self._messages.SendSignalRequest(process_id=await self._number, signal=name)
            await self._stub.SendSignal(request)

    async def _stdin(self, **payload: Any) -> None:
        try:
            number = await asyncio.shield(self._number)
            await self._stub.WriteStdin(self._messages.WriteStdinRequest(process_id=number, **payload))
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as problem:
            if isinstance(problem, asyncio.CancelledError) and not self._number.cancelled():
                raise
            raise BrokenPipeError("the command has ended") from None


def stubs() -> tuple[Any, Any]:
    """The messages and services of sandboxd, as the SDK carries them."""
    from k8s_agent_sandbox.commands._process_stubs import process_pb2, process_pb2_grpc

    return process_pb2, process_pb2_grpc
