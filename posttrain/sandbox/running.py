"""A command in a sandbox while it runs: its streams, its limits, its end.

Invariants: what is kept of a stream never exceeds the limit; a command that writes more is ended. The result
comes when the command has ended, whether or not something that it left behind holds the streams open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from posttrain.isolation.launcher.entering import BROKEN
from posttrain.sandbox.line import Event, Line, memory
from posttrain.sandbox.protocol import Outcome, Output, Result, Stream

if TYPE_CHECKING:
    from posttrain.sandbox.local import LocalSandbox

_CHUNK = 1 << 16


class Running:
    """`stdin` None leaves the command's stdin open for `write`."""

    def __init__(
        self,
        sandbox: LocalSandbox,
        *,
        limit: int,
        timeout: float | None,
        on_output: Output | None,
        stdin: bytes | None,
    ):
        self._sandbox, self._limit, self._timeout = sandbox, limit, timeout
        self._on_output, self._given = on_output, stdin
        self._loop = asyncio.get_running_loop()
        self._kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._readers: dict[Stream, int] = {}
        self._pieces: asyncio.Queue[tuple[Stream, bytes] | None] | None = None
        self._stdin = -1
        self._cut: tuple[Outcome, str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[Event] = self._loop.create_future()
        self._result: asyncio.Task[Result] | None = None
        self._line: Line
        self._begun = 0.0
        self.id = ""

    def start(self, line: Line, request: dict[str, Any]) -> None:
        self._line, self.id, self._begun = line, line.new_id(), time.monotonic()
        outputs = {stream: os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) for stream in self._kept}
        if self._given is None:
            stdin, self._stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._stdin, False)
        else:
            stdin = memory(self._given, "stdin")
        writers = [writer for _, writer in outputs.values()]
        for writer in writers:
            os.set_blocking(writer, True)
        try:
            line.ask(request | {"id": self.id}, [stdin, *writers], self._hear)
        except BaseException:
            for reader, _ in outputs.values():
                os.close(reader)
            self._close_stdin()
            raise
        finally:
            for handle in (stdin, *writers):
                os.close(handle)
        for stream, (reader, _) in outputs.items():
            self._readers[stream] = reader
            self._loop.add_reader(reader, self._read, stream)
        if self._timeout is not None:
            self._timer = self._loop.call_later(self._timeout, self._run_out)
        self._result = self._loop.create_task(self._finish())

    # -- for whoever runs it

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What has been kept so far, then what comes."""
        self._pieces = asyncio.Queue()
        for stream, kept in self._kept.items():
            if kept:
                yield stream, bytes(kept)
                kept.clear()
        if self._ended.done() and not self._readers:
            return
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def write(self, data: bytes) -> None:
        while data:
            if self._stdin < 0:
                raise BrokenPipeError("the command's stdin is closed")
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await self._writable()

    async def close_stdin(self) -> None:
        self._close_stdin()

    async def interrupt(self, *, hard: bool = False) -> None:
        number = signal.SIGKILL if hard else signal.SIGINT
        self._sandbox.signal(self.id, number, below=hard)

    async def kill(self) -> None:
        self._cut_short(Outcome.cancelled, "it was ended by order")

    async def wait(self) -> Result:
        assert self._result is not None
        return await asyncio.shield(self._result)

    # -- what happens to it

    def _hear(self, event: Event) -> None:
        if not self._ended.done():
            self._line.forget(self.id)
            self._ended.set_result(event)

    def _run_out(self) -> None:
        self._cut_short(Outcome.timed_out, f"it took longer than {self._timeout:g} s")

    def _cut_short(self, outcome: Outcome, detail: str) -> None:
        if self._cut is None and not self._ended.done():
            self._cut = (outcome, detail)
            self._sandbox.signal(self.id, signal.SIGKILL, below=False)

    def _read(self, stream: Stream) -> bool:
        """Whether there was something to read."""
        try:
            data = os.read(self._readers[stream], _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close_reader(stream)
            return False
        if self._pieces is not None:
            self._pieces.put_nowait((stream, data))
            return True
        room = self._limit - len(self._kept[stream])
        if len(data) > room:
            self._cut_short(Outcome.over_quota, f"{stream} is longer than {self._limit} bytes")
        if piece := data[:room]:
            self._kept[stream] += piece
            if self._on_output is not None:
                self._on_output(stream, piece)
        return True

    def _close_reader(self, stream: Stream) -> None:
        reader = self._readers.pop(stream)
        self._loop.remove_reader(reader)
        os.close(reader)

    async def _finish(self) -> Result:
        event = await self._ended
        seconds = time.monotonic() - self._begun
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._readers):  # what is in the pipe by now; a daemon may hold it open
            while self._read(stream):
                pass
            if stream in self._readers:
                self._close_reader(stream)
        self._close_stdin()
        outcome, code, detail = await self._judge(event)
        if self._pieces is not None:
            self._pieces.put_nowait(None)
        self._sandbox.call_ended(self)
        kept = self._kept
        return Result(outcome, code, bytes(kept["stdout"]), bytes(kept["stderr"]), seconds, detail)

    async def _judge(self, event: Event) -> tuple[Outcome, int | None, str]:
        if self._cut is not None:
            return self._cut[0], None, self._cut[1]
        if event["event"] != "ended":
            outcome, detail = self._sandbox.end or (Outcome.infrastructure_error, event.get("detail", ""))
            return outcome, None, detail
        code = event["code"]
        if code == 0:
            return Outcome.succeeded, 0, ""
        if event["oom"]:
            return Outcome.out_of_memory, code, f"more than {self._sandbox.spec.memory} were asked for"
        if code in (128 + signal.SIGKILL, BROKEN) and (end := self._sandbox.end) is not None:
            return end[0], None, end[1]
        if code == BROKEN:
            return Outcome.infrastructure_error, None, self._kept["stderr"].decode(errors="replace").strip()
        if code == 128 + signal.SIGXFSZ or (full := await self._sandbox.full()):
            where = "a file" if code == 128 + signal.SIGXFSZ else ", ".join(full)
            return Outcome.over_quota, code, f"no room in {where}: {self._sandbox.spec.disk} are allowed"
        how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        return Outcome.failed, code, how

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    async def _writable(self) -> None:
        free = asyncio.Event()
        self._loop.add_writer(self._stdin, free.set)
        try:
            await free.wait()
        finally:
            with contextlib.suppress(ValueError):
                self._loop.remove_writer(self._stdin)
