"""Shells and Python interpreters that keep their state from call to call, in one sandbox.

Each call has a time of its own. When it has run out the code is interrupted, then what it has started is
killed, and only if that does not bring the interpreter back is it started anew (`Reply.restarted`), with the
sandbox's files as they are and nothing else. So a session can always be used again while its sandbox lives.

Invariant: output is matched to its call by a word that is made for it, so what a call prints cannot end it
early or pass for another's.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass
from typing import Any, Self

from posttrain.errors import UserError
from posttrain.sandbox.protocol import Outcome, Process, Sandbox, SandboxGone, Stream
from posttrain.sandbox.replies import Collected, Replies

_START_SECONDS = 20.0
_PATIENCE = 1.0  # seconds for each of the ways to bring an interpreter back
_BASH = ["bash", "--norc", "--noprofile", "--noediting", "+H", "-i"]  # one that survives an interrupt

# Runs on the interpreter of the sandbox, whichever version that is.
_PYTHON = r"""
import ast, json, os, sys, traceback
calls, out = os.fdopen(os.dup(0), "r"), os.dup(1)
nothing = os.open(os.devnull, os.O_RDONLY); os.dup2(nothing, 0); os.close(nothing)
sys.argv = [""]
names = {"__name__": "__main__", "__builtins__": __builtins__}
def run(code):
    tree = ast.parse(code, "<cell>")
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is not None:
        value = eval(compile(last, "<cell>", "eval"), names)
        if value is not None:
            print(repr(value))
while True:
    try:
        line = calls.readline()
        if not line:
            break
        call = json.loads(line)
        code = 0
        try:
            run(call["code"])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            code = 1
            kind, value, at = sys.exc_info()
            traceback.print_exception(kind, value, at.tb_next.tb_next if at.tb_next else at)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os.write(2, ("\n%s\n" % call["word"]).encode())
        os.write(out, ("\n%s %d\n" % (call["word"], code)).encode())
    except KeyboardInterrupt:
        pass
"""


@dataclass(frozen=True)
class Reply:
    """What a call gave. `code` is the shell's status, or 0 and 1 of Python; `restarted`: its state is lost."""

    outcome: Outcome
    code: int | None
    stdout: str
    stderr: str
    restarted: bool = False
    detail: str = ""


class Session:
    """`async with` it. One call at a time; a second waits for the first."""

    def __init__(self, sandbox: Sandbox, command: list[str]):
        self._sandbox, self._command = sandbox, command
        self._process: Process | None = None
        self._replies: Replies | None = None
        self._reading: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def run(self, code: str, *, timeout: float = 60.0) -> Reply:
        """One call, `timeout` seconds at most. Raises SandboxGone where the sandbox has ended."""
        if "\0" in code:
            raise UserError("holds a NUL", field="code", remedy="write it as an escape")
        async with self._turn:
            try:
                return await self._run(code, timeout)
            except asyncio.CancelledError:
                await self._end()
                raise

    async def _run(self, code: str, timeout: float) -> Reply:
        if self._process is None:
            await self._start()
        assert self._process is not None and self._replies is not None
        word = secrets.token_hex(16)
        collected = self._replies.expect(word, self._sandbox.spec.output_bytes)
        try:
            await self._process.write(self._framed(code, word))
        except (BrokenPipeError, ConnectionResetError):
            return await self._lost(collected)
        waiting: list[asyncio.Future[Any]] = [collected.ended, self._replies.closed, collected.flooded]
        done, _ = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if collected.ended in done:
            status = collected.ended.result()
            outcome = Outcome.succeeded if status == 0 else Outcome.failed
            return self._reply(outcome, status, collected, detail="" if status == 0 else f"exit code {status}")
        if self._replies.closed in done:
            return await self._lost(collected)
        if collected.flooded in done:
            outcome, detail = Outcome.over_quota, f"it wrote more than {self._sandbox.spec.output}"
        else:
            outcome, detail = Outcome.timed_out, f"it took longer than {timeout:g} s"
        came_back = await self._bring_back(collected)
        return self._reply(outcome, None, collected, restarted=not came_back, detail=detail)

    async def _bring_back(self, collected: Collected) -> bool:
        """Interrupt, harder and harder; whether the interpreter takes a next call with its state."""
        assert self._process is not None and self._replies is not None
        for hard in (False, True, False):
            await self._process.interrupt(hard=hard)
            waiting: list[asyncio.Future[Any]] = [collected.ended, self._replies.closed]
            done, _ = await asyncio.wait(waiting, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if collected.ended in done:
                return True
            if done:
                break
        await self._end()
        return False

    async def _lost(self, collected: Collected) -> Reply:
        """The interpreter has ended: by the code's doing (exit), or with the sandbox."""
        assert self._process is not None
        result = await self._process.wait()
        await self._end()
        if result.outcome in (Outcome.succeeded, Outcome.failed):
            return self._reply(result.outcome, result.code, collected, restarted=True, detail="the session was ended")
        if result.outcome is Outcome.out_of_memory:
            return self._reply(result.outcome, result.code, collected, restarted=True, detail=result.detail)
        raise SandboxGone(result.detail, result.outcome)

    def _reply(
        self, outcome: Outcome, code: int | None, collected: Collected, *, restarted: bool = False, detail: str = ""
    ) -> Reply:
        return Reply(outcome, code, collected.text("stdout"), collected.text("stderr"), restarted, detail)

    def _framed(self, code: str, word: str) -> bytes:
        raise NotImplementedError

    async def _start(self) -> None:
        self._process = await self._sandbox.spawn(self._command, environment={"PS1": "", "PS2": "", "TERM": "dumb"})
        self._replies = Replies()
        self._reading = asyncio.create_task(self._read(self._process, self._replies))
        word = secrets.token_hex(16)
        greeting = self._replies.expect(word, self._sandbox.spec.output_bytes)
        await self._process.write(self._framed("", word))
        waiting: list[asyncio.Future[Any]] = [greeting.ended, self._replies.closed]
        await asyncio.wait(waiting, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not greeting.ended.done():
            await self._end()
            remedy = f"have {self._command[0]} in the sandbox"
            raise UserError(f"no session can be had: {greeting.text('stderr').strip()}", field="session", remedy=remedy)

    async def _read(self, process: Process, replies: Replies) -> None:
        stream: Stream
        async for stream, piece in process.output():
            replies.feed(stream, piece)
        replies.close()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Shell(Session):
    """bash. Directory, variables, functions and what runs in the background go on from call to call."""

    def __init__(self, sandbox: Sandbox):
        super().__init__(sandbox, _BASH)

    def _framed(self, code: str, word: str) -> bytes:
        # Read whole before it is run, so that the code cannot take the rest of our lines for its stdin.
        lines = [f"IFS= read -r -d '' __code <<'{word}'", code, word, 'eval "${__code}" </dev/null']
        lines += [f"__code=$?; printf '\\n%s\\n' {word} >&2; printf '\\n%s %d\\n' {word} $__code", ""]
        return "\n".join(lines).encode(errors="surrogateescape")


class Python(Session):
    """The sandbox's python3. Names and modules go on from call to call; a last expression's value is printed."""

    def __init__(self, sandbox: Sandbox, program: str = "python3"):
        super().__init__(sandbox, [program, "-u", "-c", _PYTHON])

    def _framed(self, code: str, word: str) -> bytes:
        return (json.dumps({"code": code, "word": word}) + "\n").encode()
