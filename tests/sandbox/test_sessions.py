"""Sessions keep their state, survive a time-out, and cannot be fooled about where a reply ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.sandbox import Outcome, SandboxGone
from posttrain.sandbox.replies import Collected, Replies
from posttrain.sandbox.session import Python, Reply, Session, Shell
from tests.sandbox.conftest import Boxes


def _talk(boxes: Boxes, kind: Callable[..., Session], *calls: tuple[str, float] | str, **fields) -> list[Reply]:
    async def work() -> list[Reply]:
        async with boxes.driver.sandbox(boxes.spec(**fields)) as sandbox, kind(sandbox) as session:
            pairs = [call if isinstance(call, tuple) else (call, 20.0) for call in calls]
            return [await session.run(code, timeout=seconds) for code, seconds in pairs]

    return boxes.run(work())


def test_a_shell_keeps_directory_variables_functions_and_jobs(boxes: Boxes) -> None:
    calls = [
        "cd /tmp; X=1; f() { echo f$1; }; sleep 60 & J=$!",
        "pwd; echo $X; f 2; kill -0 $J && echo runs",
        "(exit 3)",
    ]
    first, second, third = _talk(boxes, Shell, *calls)
    assert first.outcome is Outcome.succeeded and second.stdout == "/tmp\n1\nf2\nruns\n"
    assert (third.outcome, third.code) == (Outcome.failed, 3)


def test_python_keeps_names_and_prints_the_last_value(boxes: Boxes) -> None:
    first, second, third, fourth = _talk(boxes, Python, "import math\nx = 41", "x + 1", "1 / 0", "print(x); None")
    assert (first.stdout, second.stdout, fourth.stdout) == ("", "42\n", "41\n")
    assert (third.outcome, third.code) == (Outcome.failed, 1) and "line 1" in third.stderr
    assert "ZeroDivisionError" in third.stderr and "exec(" not in third.stderr  # its own lines, not ours


@pytest.mark.parametrize(
    ("kind", "set_up", "stuck", "look"),
    [
        (Shell, "X=5", "sleep 99", "echo $X"),
        (Shell, "X=5", "while :; do :; done", "echo $X"),
        (Shell, "X=5", "trap '' INT TERM; sleep 99", "echo $X"),
        (Shell, "X=5", "python3 -c 'import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(99)'", "echo $X"),
        (Python, "X = 5", "import time; time.sleep(99)", "X"),
        (Python, "X = 5", "while True: pass", "X"),
        (Python, "X = 5", "import subprocess; subprocess.run(['sleep', '99'])", "X"),
    ],
)
def test_a_time_out_leaves_the_state(boxes: Boxes, kind: type[Session], set_up: str, stuck: str, look: str) -> None:
    _, timed_out, after = _talk(boxes, kind, set_up, (stuck, 0.3), look)
    assert (timed_out.outcome, timed_out.restarted) == (Outcome.timed_out, False)
    assert (after.outcome, after.stdout) == (Outcome.succeeded, "5\n")


def test_what_cannot_be_interrupted_is_started_anew(boxes: Boxes) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    _, timed_out, after = _talk(boxes, Python, "X = 5", (stubborn, 0.2), "'X' in globals()")
    assert (timed_out.outcome, timed_out.restarted) == (Outcome.timed_out, True)
    assert (after.outcome, after.stdout) == (Outcome.succeeded, "False\n")


@pytest.mark.parametrize(
    ("kind", "ending"), [(Shell, "exit 4"), (Shell, "kill -9 $$"), (Python, "import os; os._exit(4)")]
)
def test_an_interpreter_that_ended_is_started_anew(boxes: Boxes, kind: type[Session], ending: str) -> None:
    ended, after = _talk(boxes, kind, ending, "echo 1" if kind is Shell else "1")
    assert ended.restarted and ended.outcome is Outcome.failed
    assert (after.outcome, after.stdout, after.restarted) == (Outcome.succeeded, "1\n", False)


def test_text_of_every_kind_goes_through(boxes: Boxes) -> None:
    nasty = "é ! !! `` $( \\ ' \" %s\n\tx"
    shell, heredoc = _talk(boxes, Shell, "cat <<'END'\n" + nasty + "\nEND", "cat <<END; cat\nx\nEND")
    assert shell.stdout == nasty + "\n" and heredoc.stdout == "x\n"
    (python,) = _talk(boxes, Python, f"print({nasty!r})")
    assert python.stdout == nasty + "\n"


def test_a_flood_is_cut_and_the_session_goes_on(boxes: Boxes) -> None:
    flood, after = _talk(boxes, Shell, "yes", "echo fine", output="64Ki")
    assert flood.outcome is Outcome.over_quota and len(flood.stdout) == 64 << 10
    assert after.stdout == "fine\n"


def test_a_session_in_a_sandbox_that_ended_says_so(boxes: Boxes) -> None:
    async def work() -> None:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            shell = Shell(sandbox)
            await shell.run("true")
            await sandbox.stop()
            with pytest.raises(SandboxGone) as gone:
                await shell.run("true")
            assert gone.value.outcome is Outcome.cancelled

    boxes.run(work())


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_replies_are_cut_alike_however_the_pieces_fall(calls: list[tuple[bytes, bytes, int]], size: int) -> None:
    async def work() -> None:
        replies = Replies()
        for number, (out, err, status) in enumerate(calls):
            word = f"w{number:031d}"
            collected: Collected = replies.expect(word, 1 << 20)
            said = {"stdout": out + f"\n{word} {status}\n".encode(), "stderr": err + f"\n{word}\n".encode()}
            for stream, text in said.items():
                for at in range(0, len(text), size):
                    replies.feed(stream, text[at : at + size])  # type: ignore[arg-type]
            assert collected.ended.result() == status
            assert (bytes(collected.parts["stdout"]), bytes(collected.parts["stderr"])) == (out, err)

    asyncio.run(work())
