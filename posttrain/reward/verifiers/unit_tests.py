"""`unit_tests`: code against tests, in a fresh sandbox that the policy never had.

    {"cases": [{"stdin", "stdout"}]}                            a program; what it should print stays outside
    {"calls": [{"args", "kwargs", "expect"}], "entry_point"}    a function; what it should return stays outside
    {"asserts": source, "entry_point"}                          HumanEval's `check(candidate)`, or plain asserts
    {"pytest": source}                                          tests that import `solution`

With {"partial": true} the reward is the share that passed, else all or nothing. {"timeout": seconds of processor time
of one case, so that a busy machine changes no verdict; on the clock it may take several times as long},
{"memory", "prelude": put before the code, "prompt": put before code that does not define `entry_point` itself,
"tolerance": of returned floats}.
"""

from __future__ import annotations

import ast
import json
import math
import os
import secrets
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.reward.answers import block
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.settings import Lane
from posttrain.reward.verifiers.base import Tools, nothing_found, scored
from posttrain.sandbox import Driver, Outcome, Result, Sandbox, SandboxGone, SandboxSpec

_LONGEST_CODE = 100_000
_MOST_CASES = 1000
_WALL_SECONDS = 600.0  # of one sandbox
_SHOWN = 20  # cases in the evidence
_FORMS = ("cases", "calls", "asserts", "pytest")
_HARNESS = Path(__file__).resolve().parents[1] / "harness"
_PYTHON = ["python", "-I"]
# The soft limit first: a hard one below it is refused.
_LIMITED = ["/bin/sh", "-c", 'ulimit -S -t "$0"; ulimit -H -t $(($0 + 2)); exec "$@"']
_XCPU = 128 + 24  # the exit code of a process whose processor time was up


@dataclass
class Ran:
    """What became of the tests: how many there were and passed, and the first words on those that did not."""

    total: int
    passed: int = 0
    notes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, passed: bool, **note: Any) -> None:
        self.passed += passed
        if not passed and len(self.notes) < _SHOWN:
            self.notes.append(note)


class UnitTests:
    """`driver` makes the sandboxes; it is called once, when the first is needed."""

    lane, usual, prepare = "sandbox", Lane(concurrency=max(2, os.cpu_count() or 1), seconds=_WALL_SECONDS), None

    def __init__(self, driver: Callable[[], Driver]):
        self._open = driver
        self._driver: Driver | None = None

    async def version(self, question: Question, tools: Tools) -> str:
        return "1"

    async def close(self) -> None:
        if self._driver is not None:
            await self._driver.close()

    async def verify(self, question: Question, tools: Tools) -> Finding:
        form, spec, seconds = _plan(question)
        code, formed = block(question.completion, ("python", "py", "python3"), question.form, longest=_LONGEST_CODE)
        if code is None:
            return nothing_found()
        code = _whole(code, question)
        try:
            if self._driver is None:
                self._driver = self._open()
            async with self._driver.sandbox(spec) as sandbox:
                await sandbox.write_file("/workspace/solution.py", code.encode(errors="replace"))
                ran = await _RUN[form](sandbox, question, seconds)
        except SandboxGone as gone:
            if gone.outcome is Outcome.infrastructure_error or gone.outcome is Outcome.cancelled:
                raise Problem(Status.sandbox_error, f"the sandbox was lost: {gone.detail}") from None
            return scored(0.0, code[:2000], formed, note=f"the sandbox ended: {gone.outcome}")
        except (UserError, OSError) as problem:
            raise Problem(Status.sandbox_error, f"no sandbox: {problem}") from None
        share = ran.passed / ran.total
        reward = share if question.metadata.get("partial") else float(ran.passed == ran.total)
        return scored(reward, code[:2000], formed, passed=ran.passed, total=ran.total, failed=ran.notes)


def _plan(question: Question) -> tuple[str, SandboxSpec, float]:
    """Raises Problem for tests that make no sense."""
    details = question.metadata
    forms = [form for form in _FORMS if form in details]
    if len(forms) != 1:
        raise Problem(Status.invalid_answer, f"metadata must hold one of {', '.join(_FORMS)}")
    form, given = forms[0], details[forms[0]]
    if form in ("cases", "calls"):
        if not isinstance(given, list) or not 0 < len(given) <= _MOST_CASES:
            raise Problem(Status.invalid_answer, f"metadata.{form} is no list of 1 to {_MOST_CASES}")
        for index, case in enumerate(given):
            if not (_is_case(case) if form == "cases" else _is_call(case)):
                raise Problem(Status.invalid_answer, f"metadata.{form}[{index}] is none")
    elif not isinstance(given, str) or not given.strip():
        raise Problem(Status.invalid_answer, f"metadata.{form} is no source")
    if form == "calls" and not isinstance(details.get("entry_point"), str):
        raise Problem(Status.invalid_answer, "metadata.entry_point is missing")
    seconds = details.get("timeout", 10.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 120:
        raise Problem(Status.invalid_answer, "metadata.timeout is no number of seconds up to 120")
    try:
        spec = SandboxSpec(
            cpu=1.0, memory=str(details.get("memory", "1Gi")), pids=64, disk="256Mi", wall_seconds=_WALL_SECONDS
        )
    except UserError as problem:
        raise Problem(Status.invalid_answer, f"metadata.{problem}") from None
    return form, spec, float(seconds)


def _is_case(case: Any) -> bool:
    return isinstance(case, dict) and isinstance(case.get("stdout"), str) and isinstance(case.get("stdin", ""), str)


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and "expect" in call
        and isinstance(call.get("args", []), list)
        and isinstance(call.get("kwargs", {}), dict)
    )


def _whole(code: str, question: Question) -> str:
    """The code behind what the task says stands before it."""
    entry, prompt = question.metadata.get("entry_point"), question.metadata.get("prompt")
    if isinstance(entry, str) and isinstance(prompt, str) and not _defines(code, entry):
        code = prompt + code
    prelude = question.metadata.get("prelude", "")
    return f"{prelude}\n{code}" if prelude else code


def _defines(code: str, name: str) -> bool:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"def {name}" in code
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in tree.body)


async def _cases(sandbox: Sandbox, question: Question, seconds: float) -> Ran:
    cases = question.metadata["cases"]
    ran = Ran(len(cases))
    for index, case in enumerate(cases):
        given = case.get("stdin", "").encode(errors="replace")
        result = await _run(sandbox, [*_PYTHON, "/workspace/solution.py"], seconds, stdin=given)
        if result.outcome is not Outcome.succeeded:
            ran.add(False, case=index, ended=result.outcome.value, stderr=_tail(result))
            continue
        right = _lines(result.text) == _lines(case["stdout"])
        ran.add(right, case=index, printed=result.text[:500], expected=case["stdout"][:500])
    return ran


async def _calls(sandbox: Sandbox, question: Question, seconds: float) -> Ran:
    calls, details = question.metadata["calls"], question.metadata
    ran = Ran(len(calls))
    wanted = [{"args": call.get("args", []), "kwargs": call.get("kwargs", {})} for call in calls]
    told = json.dumps({"entry_point": details["entry_point"], "calls": wanted}).encode()
    result = await _run(sandbox, [*_PYTHON, "-c", _program("calls")], seconds, stdin=told + b"\n")
    lines = result.stdout.decode(errors="replace").splitlines()
    tolerance = float(details.get("tolerance", 1e-9))
    for index, call in enumerate(calls):
        got = _json(lines[index]) if index < len(lines) else None
        if not isinstance(got, dict):
            ran.add(False, call=index, ended=result.outcome.value, stderr=_tail(result))
        elif "error" in got:
            ran.add(False, call=index, raised=got["error"])
        else:
            right = same_value(call["expect"], got.get("value"), tolerance)
            ran.add(right, call=index, returned=repr(got.get("value"))[:500], expected=repr(call["expect"])[:500])
    return ran


async def _asserts(sandbox: Sandbox, question: Question, seconds: float) -> Ran:
    word = secrets.token_hex(16)
    told = {"tests": question.metadata["asserts"], "entry_point": question.metadata.get("entry_point"), "word": word}
    stdin = json.dumps(told).encode() + b"\n"
    result = await _run(sandbox, [*_PYTHON, "-c", _program("asserts")], seconds, stdin=stdin)
    ran = Ran(1)
    right = result.outcome is Outcome.succeeded and result.text == word
    ran.add(right, ended=result.outcome.value, stderr=_tail(result))
    return ran


async def _pytest(sandbox: Sandbox, question: Question, seconds: float) -> Ran:
    source = question.metadata["pytest"]
    try:
        wanted = sum(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in ast.walk(ast.parse(source))
        )
    except SyntaxError as problem:
        raise Problem(Status.invalid_answer, f"metadata.pytest cannot be read: {problem}") from None
    if not wanted:
        raise Problem(Status.invalid_answer, "metadata.pytest holds no test")
    await sandbox.write_file("/workspace/test_solution.py", source.encode())
    command = [
        *_PYTHON,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=/tmp/report.xml",
        "test_solution.py",
    ]
    # Only pytest itself: whatever plug-ins this machine has would take their time, and might change what passes.
    result = await _run(sandbox, command, seconds, environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    try:
        report = ElementTree.fromstring(await sandbox.read_file("/tmp/report.xml", limit=4 << 20))
        suite = report if report.tag == "testsuite" else report[0]
        counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    except (FileNotFoundError, UserError, ElementTree.ParseError, ValueError, IndexError):
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    total = max(counts["tests"], wanted)
    passed = max(0, counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"])
    if result.outcome is not Outcome.succeeded and passed >= total:
        passed = total - 1  # the report says so and the end says otherwise
    ran = Ran(total, passed=min(passed, total))
    if ran.passed < total:
        ran.notes.append({"ended": result.outcome.value, "output": result.text[-3000:]})
    return ran


_RUN: dict[str, Callable[[Sandbox, Question, float], Awaitable[Ran]]] = {
    "cases": _cases, "calls": _calls, "asserts": _asserts, "pytest": _pytest,
}  # fmt: skip


def same_value(expected: Any, got: Any, tolerance: float) -> bool:
    """Equal as Python would have it, floats within `tolerance`, relative or absolute."""
    if isinstance(expected, float) or isinstance(got, float):
        numbers = all(isinstance(v, int | float) for v in (expected, got))
        return numbers and math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, list) and isinstance(got, list):
        pairs = zip(expected, got, strict=False)
        return len(expected) == len(got) and all(same_value(e, g, tolerance) for e, g in pairs)
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(same_value(expected[k], got[k], tolerance) for k in expected)
    return bool(expected == got)


async def _run(
    sandbox: Sandbox,
    command: list[str],
    seconds: float,
    *,
    stdin: bytes = b"",
    environment: dict[str, str] | None = None,
) -> Result:
    """What became of a program. Raises Problem where that says nothing about it."""
    result = await sandbox.exec(
        [*_LIMITED, str(math.ceil(seconds)), *command], stdin=stdin, timeout=6 * seconds + 10, workdir="/workspace",
        environment=environment,
    )  # fmt: skip
    if result.code == _XCPU:
        result = replace(result, outcome=Outcome.timed_out)
    if result.outcome in (Outcome.infrastructure_error, Outcome.cancelled):
        raise Problem(Status.sandbox_error, f"the sandbox failed: {result.detail or result.outcome}")
    return result


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _tail(result: Result) -> str:
    return result.stderr.decode(errors="replace")[-1000:]


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@cache
def _program(name: str) -> str:
    return (_HARNESS / f"{name}.py").read_text()
