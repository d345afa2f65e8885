"""Code against tests in real sandboxes: right, wrong, hostile; no trick turns a wrong program into a right one."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.isolation import bubblewrap
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.verifiers.base import Tools
from posttrain.reward.verifiers.unit_tests import UnitTests, same_value
from posttrain.sandbox import Outcome, Result, SandboxGone
from posttrain.sandbox.bubblewrap import BubblewrapDriver

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refused(("--unshare-user", "--unshare-net"))), reason="no sandbox can be made on this machine"
)

DOUBLE = {"calls": [{"args": [n], "expect": 2 * n} for n in (1, 5, -3)], "entry_point": "double"}
ECHO = {"cases": [{"stdin": "a b\n", "stdout": "b a"}, {"stdin": "x y\n", "stdout": "y x\n"}]}
TESTS = """
from solution import double
def test_one():
    assert double(2) == 4
def test_two():
    assert double(0) == 0
"""
PYTEST = {"pytest": TESTS}
CHECK = {"asserts": "def check(candidate):\n    assert candidate(3) == 6\n", "entry_point": "double"}
RIGHT = "def double(n):\n    return n * 2\n"


@pytest.fixture(scope="module")
def judge():
    """Every question of the module through one verifier in one loop."""
    runner = asyncio.Runner()
    verifier = UnitTests(BubblewrapDriver)

    async def find(code: str, details: dict) -> Finding:
        question = Question("unit_tests", f"Here:\n```python\n{code}\n```\n", metadata=details)
        return await verifier.verify(question, Tools(None, None, None))

    yield lambda code, **details: runner.run(find(code, details))
    runner.run(verifier.close())
    runner.close()


@pytest.mark.parametrize(
    ("details", "right", "wrong"),
    [
        (DOUBLE, RIGHT, "def double(n):\n    return n + 2"),
        (CHECK, RIGHT, "def double(n):\n    return n + 2"),
        (PYTEST, RIGHT, "def double(n):\n    return n + 2"),
        (ECHO, "print(*reversed(input().split()))", "print(input())"),
    ],
    ids=["calls", "asserts", "pytest", "cases"],
)
def test_right_and_wrong_programs_are_told_apart(judge, details, right, wrong):
    good, bad = judge(right, **details), judge(wrong, **details)
    assert good.reward == 1.0 and good.correct and good.evidence["failed"] == []
    assert bad.reward == 0.0 and bad.evidence["failed"] and bad.well_formed


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "def double(n",
        "raise SystemExit('ok')",
        "print('{\"value\": 2}'); print('4'); print('b a')\ndef double(n): return None",
        "import os; os.kill(os.getppid(), 9)",
    ],
)
def test_a_program_that_leaves_early_or_prints_what_it_likes_has_not_passed(judge, code):
    for details in (DOUBLE, CHECK, ECHO, *([PYTEST] if "exit" in code else [])):
        found = judge(code, **details)
        assert found.status is Status.scored and found.reward == 0.0


def test_what_is_expected_never_enters_the_sandbox(judge):
    """A program that looks at every file and at its own memory's arguments does not find the answer."""
    secret = "unguessable-4711"
    code = (
        "import os, sys\n"
        "def find(_):\n"
        "    for base, _, names in os.walk('/workspace'):\n"
        "        for name in names:\n"
        "            text = open(os.path.join(base, name), errors='replace').read()\n"
        "            if 'unguessable' in text.replace('if \\'unguessable', ''): return text\n"
        "    return [open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc') if p.isdigit()]\n"
    )
    found = judge(code, calls=[{"args": [0], "expect": secret}], entry_point="find")
    assert found.reward == 0.0 and secret not in found.evidence["failed"][0].get("returned", "")


def test_endless_and_greedy_programs_are_wrong_and_end(judge):
    loop = judge("while True: pass", **ECHO, timeout=1)
    assert loop.reward == 0.0 and loop.evidence["failed"][0]["ended"] == "timed_out"
    greedy = judge("x = bytearray(1 << 33)\nprint('b a')", **ECHO)
    assert greedy.reward == 0.0


def test_a_program_cannot_give_itself_more_processor_time(judge):
    code = "import resource; print(*resource.getrlimit(resource.RLIMIT_CPU))"
    found = judge(code, cases=[{"stdout": "1 3"}], timeout=1)
    assert found.reward == 1.0, found.evidence
    assert judge("x", **ECHO).evidence["failed"][0]["stderr"].startswith("Traceback")  # and nothing of ours before it


def test_a_part_of_the_tests_is_a_part_of_the_reward_where_it_is_asked_for(judge):
    found = judge("def double(n):\n    return 2 * n if n > 0 else 0", **DOUBLE, partial=True)
    assert found.reward == pytest.approx(2 / 3) and found.evidence["passed"] == 2


def test_values_come_back_as_they_are(judge):
    values = [[1, 2.5], {"a": [None, True]}, "é\n", {"__set__": [1, 2]}, {"__float__": "inf"}]
    code = "def value(i):\n    return [(1, 2.5), {'a': (None, True)}, 'é\\n', {2, 1}, float('inf')][i]"
    calls = [{"args": [i], "expect": value} for i, value in enumerate(values)]
    assert judge(code, calls=calls, entry_point="value").reward == 1.0


@pytest.mark.parametrize(
    "details",
    [
        {}, {"cases": []}, {"calls": [{"args": []}], "entry_point": "f"}, {"calls": DOUBLE["calls"]},
        {**ECHO, "timeout": 0}, {**ECHO, "memory": "lots"}, {"pytest": "x = 1"}, {**ECHO, **PYTEST},
    ],
)  # fmt: skip
def test_tests_that_make_no_sense_are_the_datas_fault(judge, details):
    with pytest.raises(Problem) as problem:
        judge(RIGHT, **details)
    assert problem.value.status is Status.invalid_answer


class Broken:
    """A driver whose sandboxes fail as told."""

    def __init__(self, *, start: Exception | None = None, result: Result | None = None):
        self._start, self._result = start, result

    def sandbox(self, spec):
        return self

    async def __aenter__(self):
        if self._start is not None:
            raise self._start
        return self

    async def __aexit__(self, *_):
        pass

    async def write_file(self, path, data, *, mode=0o644):
        pass

    async def exec(self, command, **_):
        return self._result


@pytest.mark.parametrize(
    "driver",
    [
        Broken(start=SandboxGone("no room")),
        Broken(start=OSError("no such program")),
        Broken(result=Result(Outcome.infrastructure_error, None, b"", b"", 0.0, "the node went away")),
        Broken(result=Result(Outcome.cancelled, None, b"", b"", 0.0)),
    ],
)
def test_a_sandbox_that_fails_is_no_verdict(driver):
    question = Question("unit_tests", f"```python\n{RIGHT}```", metadata=DOUBLE)
    with pytest.raises(Problem) as problem:
        asyncio.run(UnitTests(lambda: driver).verify(question, Tools(None, None, None)))
    assert problem.value.status is Status.sandbox_error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_a_value_is_the_same_as_itself_and_comparing_is_the_same_both_ways(one, other):
    assert same_value(one, json.loads(json.dumps(one)), 1e-9)
    assert same_value(one, other, 0.0) == same_value(other, one, 0.0)
