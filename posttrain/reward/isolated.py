"""Code of others in a child process: math-verify, reasoning-gym, regular expressions, units, users' functions.

They may take for ever on a hostile expression (`9**9**9`), and math-verify's own time-out rests on SIGALRM, which
fails silently off the main thread. So they run in a child that is killed when an answer takes more than
`TIME_LIMIT` seconds of its processor time or outgrows its memory. Time on the clock would let the verdict depend
on what else the machine does; `STUCK_LIMIT` of it is the last resort.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Literal

TIME_LIMIT = 5.0
STUCK_LIMIT = 120.0
START_LIMIT = 600.0  # importing both libraries on a busy machine
MEMORY = 4 << 30

log = logging.getLogger(__name__)


class GaveUp(Exception):
    """No answer: the processor time was up ("limit"), the clock's ("stuck"), or the child died ("crashed")."""

    def __init__(self, why: Literal["limit", "stuck", "crashed"], detail: str):
        super().__init__(detail)
        self.why: Literal["limit", "stuck", "crashed"] = why


class Child:
    """One child process that answers one question at a time. Safe to share between threads.

    `seconds` of processor time for one question, `memory` bytes of address space (0: no bound). A new process first
    loads what `prepare` names, so that no answer's time is spent on it.
    """

    def __init__(self, *, seconds: float = TIME_LIMIT, memory: int = MEMORY, path: str = "", prepare: str = "") -> None:
        self._arguments = [str(seconds), str(memory)]
        self._path, self._prepare = path, prepare
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, *question: Any, limit: float = STUCK_LIMIT) -> Any:
        """The child's answer. Raises GaveUp where it died over it, or took longer than `limit` seconds."""
        with self._lock:
            child = self._alive()
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(question).encode() + b"\n")
                child.stdin.flush()
                return json.loads(self._line(limit))
            except TimeoutError as problem:
                self._stop()
                raise self._gave_up("stuck", question, str(problem)) from None
            except (BrokenPipeError, EOFError):
                code = self._stop()
                if code == -signal.SIGPROF:
                    raise self._gave_up("limit", question, "its processor time was up") from None
                raise self._gave_up("crashed", question, f"the child ended with code {code}") from None

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _gave_up(self, why: Literal["limit", "stuck", "crashed"], question: tuple[Any, ...], detail: str) -> GaveUp:
        log.warning("a %s verdict was given up: %s", question[0], detail)
        return GaveUp(why, detail)

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join(filter(None, [root, self._path, os.environ.get("PYTHONPATH")]))
            self._child = subprocess.Popen(
                [sys.executable, "-m", "posttrain.reward.child", *self._arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
            try:
                self._line(START_LIMIT)
                if self._prepare:
                    assert self._child.stdin is not None
                    self._child.stdin.write(json.dumps(["prepare", self._prepare]).encode() + b"\n")
                    self._line(START_LIMIT)
            except (TimeoutError, EOFError, BrokenPipeError) as problem:
                self._stop()
                raise GaveUp("crashed", f"the child did not start: {problem}") from None
        return self._child

    def _line(self, limit: float) -> bytes:
        assert self._child is not None and self._child.stdout is not None
        until, received = time.monotonic() + limit, b""
        while not received.endswith(b"\n"):
            ready, _, _ = select.select([self._child.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer within {limit:g} s")
            part = os.read(self._child.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError("the child ended over it")
            received += part
        return received

    def _stop(self) -> int | None:
        """End the child; its exit code, where it had ended by itself."""
        if self._child is None:
            return None
        try:
            code = self._child.wait(1.0) if self._child.stdout and _at_end(self._child) else self._child.poll()
        except subprocess.TimeoutExpired:
            code = None
        self._child.kill()
        self._child.communicate()
        self._child = None
        return code


def _at_end(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has closed its side, so that it is about to be gone."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], 0)
    return bool(ready) and not os.read(child.stdout.fileno(), 1)


@cache
def _shared(process: int) -> Child:
    return Child()


def ask(*question: Any, limit: float = STUCK_LIMIT) -> Any:
    """Ask this process's child. A fork gets its own: two processes on one pair of pipes would mix answers."""
    return _shared(os.getpid()).ask(*question, limit=limit)
