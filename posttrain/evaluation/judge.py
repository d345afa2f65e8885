"""The part of verifying that runs others' code: math-verify and reasoning-gym, in a child process.

Both may take for ever on a hostile expression (`9**9**9`), and math-verify's own time-out rests on SIGALRM, which
fails silently off the main thread. So they run in one child that is killed when an answer takes more than
`TIME_LIMIT` seconds of its processor time or outgrows `MEMORY` bytes; the verdict is then "wrong". Time on the clock
would let the verdict depend on what else the machine does; `STUCK_LIMIT` of it is the last resort.

Invariant: nothing that a model wrote is run as Python. Several scorers of reasoning-gym hand the answer to `eval`
or to sympy's parser, which is one; they get an answer only when it can call nothing (`callable_free`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

TIME_LIMIT = 5.0
STUCK_LIMIT = 120.0
START_LIMIT = 600.0  # importing both libraries on a busy machine
MEMORY = 4 << 30

log = logging.getLogger(__name__)

_HARMLESS = r"(?:sin|cos|tan|exp|log|ln|sqrt|abs)"
_CALL = re.compile(rf"(?<![A-Za-z_])(?!{_HARMLESS}\s*\()[A-Za-z]\w*\s*\(|[\])'\"]\s*\(")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]|__|[{}@`;]|\blambda\b|\bimport\b")


def callable_free(text: str) -> bool:
    """Whether `text`, read as Python, can call nothing but a few functions of mathematics."""
    return not (_CALL.search(text) or _ATTRIBUTE.search(text))


class Judge:
    """One child process that answers one question at a time. Safe to share between threads."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, *question: Any, limit: float = STUCK_LIMIT) -> Any:
        """The child's answer; None where it died over it, or took longer than `limit` seconds."""
        with self._lock:
            child = self._alive()
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(question).encode() + b"\n")
                child.stdin.flush()
                return json.loads(self._line(limit))
            except (TimeoutError, BrokenPipeError, EOFError) as problem:
                log.warning("a %s verdict was given up: %s", question[0], problem or type(problem).__name__)
                self._stop()
                return None

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
            self._child = subprocess.Popen(
                [sys.executable, "-m", "posttrain.evaluation.judge"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
            self._line(START_LIMIT)
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

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


@cache
def _shared(process: int) -> Judge:
    return Judge()


def judge(*question: Any, limit: float = STUCK_LIMIT) -> Any:
    """Ask this process's judge. A fork gets its own: two processes on one pair of pipes would mix answers."""
    return _shared(os.getpid()).ask(*question, limit=limit)


# The child's side.


@cache
def _dataset(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=1, seed=0)


@cache
def _evaluates(name: str) -> bool:
    import inspect

    source = inspect.getsource(inspect.getmodule(type(_dataset(name))))  # type: ignore[arg-type]
    return re.search(r"\b(eval|exec|parse_expr|sympify)\(", source) is not None


def _known(name: str) -> bool:
    """Whether there is such a verifier. Loads what it needs, so that no answer's time is spent on it."""
    if name == "math":
        return _math("1", "1")
    from reasoning_gym.factory import DATASETS

    return name in DATASETS and _dataset(name) is not None


def _math(answer: str, given: str) -> bool:
    from math_verify import parse, verify

    gold, found = (
        parse(text, parsing_timeout=None) or parse(f"${text}$", parsing_timeout=None) for text in (answer, given)
    )
    return bool(gold and found) and verify(gold, found, timeout_seconds=None)


def _reasoning_gym(name: str, entry: dict[str, Any], given: str) -> bool:
    if _evaluates(name) and not callable_free(given):
        return False
    return float(_dataset(name).score_answer(given, entry)) >= 1.0 - 1e-9


QUESTIONS: dict[str, Callable[..., bool]] = {"known": _known, "math": _math, "reasoning_gym": _reasoning_gym}


def _serve() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    print("true", file=answers, flush=True)
    for line in sys.stdin:
        kind, *arguments = json.loads(line)
        if kind != "known":  # which loads the libraries
            signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)  # SIGPROF ends the process, whatever it is doing
        try:
            verdict = QUESTIONS[kind](*arguments)
        except Exception as problem:  # a scorer's own failure on a strange answer is the answer's fault
            print(f"{kind} verifier: {type(problem).__name__}: {problem}", file=sys.stderr)
            verdict = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(bool(verdict)), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
