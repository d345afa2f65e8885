"""A ledger tells of a trajectory: it is rebuilt from it, run again, compared, and survives a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posttrain.errors import UserError
from posttrain.llmm import trace
from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.crossing import convert
from posttrain.llmm.ir import Trajectory, climb
from posttrain.llmm.ir.agentic import Outcome
from posttrain.llmm.recording import record
from posttrain.llmm.replay import compare, differences, replay
from tests.llmm.conversations import ANSWERS, anthropic_calls


def ledger(name: str = "anthropic_messages") -> list[trace.Event]:
    """Three calls with a tool in between, a conversion, a verdict and the end."""
    events: list[trace.Event] = [trace.Started(id="start", at=0.0, trajectory="t1", task="sum", group="g")]
    cause = "start"
    for number, (request, response) in enumerate(anthropic_calls()):
        wire, answer = request, response
        if name != "anthropic_messages":
            wire = convert("anthropic_messages", name, request).wire
            answer = convert("anthropic_messages", name, response, "response").wire
        events.append(
            trace.Asked(
                id=f"call{number}",
                at=1.0 + number,
                cause=cause,
                seconds=0.5,
                dialect=name,
                request=wire,
                response=answer,
            )
        )
        cause = f"call{number}"
    used = trace.Used(
        id="tool0", at=1.6, cause="call0", seconds=0.1, call="c0", name="run", arguments={"n": 0}, result="0"
    )
    crossing = convert("anthropic_messages", "openai_chat", anthropic_calls()[0][0])
    losses = tuple(trace.Lost(loss.path, loss.value, loss.reason) for loss in crossing.losses)
    events += [
        used,
        trace.Converted(
            id="conv", at=5.0, cause="call0", source="anthropic_messages", target="openai_chat", kind="request",
            wire=anthropic_calls()[0][0], result=crossing.wire, losses=losses,
        ),
        trace.Judged(id="judge", at=6.0, cause=cause, verifier="exact", status="scored", reward=1.0),
        trace.Ended(id="end", at=7.0, cause="judge", status="finished"),
    ]  # fmt: skip
    return events


def written(path: Path, events: list[trace.Event]) -> Path:
    with trace.Ledger(path) as book:
        for event in events:
            book.append(event)
    return path


@pytest.mark.parametrize("name", ["anthropic_messages", "openai_chat", "openai_responses", "google_genai"])
def test_a_trajectory_is_rebuilt_from_its_ledger(name: str, tmp_path: Path) -> None:
    events = ledger(name)
    again = trace.read(written(tmp_path / "t.jsonl", events))
    assert again == events
    trajectory = trace.rebuild(again)
    assert trajectory.id == "t1" and trajectory.outcome == Outcome(status="finished", reward=1.0)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
    assert not any(turn.fork for turn in trajectory.turns)
    asked = [event for event in events if isinstance(event, trace.Asked)]
    it = dialect(name)
    for call, event in zip(climb.lower(trajectory), asked, strict=True):
        assert call.request is not None and call.response is not None
        assert it.lower_request(call.request) == event.request
        assert it.lower_response(call.response) == event.response


def test_recording_what_was_rebuilt_gives_the_same_trajectory() -> None:
    trajectory = trace.rebuild(ledger())
    assert trace.rebuild(record(trajectory, "anthropic_messages")) == trajectory


def test_sub_agents_are_children_of_the_call_that_spawned_them() -> None:
    events = ledger()
    request, response = anthropic_calls()[0]
    child = trace.Asked(
        id="sub",
        at=1.7,
        cause="tool0",
        dialect="anthropic_messages",
        request=request,
        response=response,
        agent="helper",
    )
    used = next(event for event in events if isinstance(event, trace.Used))
    events.remove(used)
    events[2:2] = [used, child]
    (found,) = trace.rebuild(events).children
    assert (found.id, found.spawned, len(found.turns)) == ("helper", "c0", 1)


def test_replay_of_an_honest_ledger_finds_nothing() -> None:
    assert replay(ledger()) is None


def test_replay_names_the_first_difference() -> None:
    events = ledger()
    place = next(i for i, event in enumerate(events) if isinstance(event, trace.Converted))
    honest = events[place]
    assert isinstance(honest, trace.Converted)
    forged = json.loads(json.dumps(honest.result))
    forged["messages"][1]["content"] = "something else"
    events[place] = msgspec.structs.replace(honest, result=forged)
    found = replay(events)
    assert found is not None
    assert (found.event, found.path, found.was) == ("conv", "result.messages.1.content", "something else")
    events[place] = msgspec.structs.replace(honest, losses=())
    found = replay(events)
    assert found is not None and found.path == "losses.0"


def test_replay_asks_the_model_again() -> None:
    answers = {json.dumps(request): response for request, response in anthropic_calls()}
    assert replay(ledger(), lambda name, request: answers[json.dumps(request)]) is None
    renamed = {
        request: json.loads(json.dumps(answer).replace('"id": "c', '"id": "other'))
        for request, answer in answers.items()
    }
    assert renamed != answers and replay(ledger(), lambda name, request: renamed[json.dumps(request)]) is None
    last = json.dumps(anthropic_calls()[-1][0])
    changed = json.loads(json.dumps(answers[last]))
    changed["content"][0]["text"] = "another answer"
    found = list(differences(ledger(), lambda _, r: changed if json.dumps(r) == last else answers[json.dumps(r)]))
    assert [(one.event, one.what) for one in found] == [("call2", "answer of the model")]
    assert (found[0].was, found[0].now) == (ANSWERS[-1], "another answer")


def test_two_ledgers_are_compared_turn_by_turn() -> None:
    events = ledger()
    assert compare(events, ledger("openai_chat")) is None, "the same conversation in another dialect is the same"
    asked = [i for i, event in enumerate(events) if isinstance(event, trace.Asked)]
    third = events[asked[2]]
    assert isinstance(third, trace.Asked) and third.response is not None
    other = json.loads(json.dumps(third.response))
    other["content"][0]["text"] = "no"
    events[asked[2]] = msgspec.structs.replace(third, response=other)
    found = compare(ledger(), events)
    assert found is not None
    assert (found.what, found.path, found.now) == ("turn 2", "said.message.parts.0.text", "no")


def test_a_line_that_a_crash_cut_off_is_not_written_and_goes_with_the_next_writer(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", ledger())
    whole = path.read_bytes()
    for cut in (1, 5, len(whole.splitlines()[-1])):
        path.write_bytes(whole[:-cut])
        assert trace.read(path) == ledger()[:-1]
        with trace.Ledger(path) as book:
            book.append(ledger()[-1])
        assert path.read_bytes() == whole


def test_events_written_by_a_process_that_is_killed_are_there(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from posttrain.llmm import trace\n"
        "book = trace.Ledger(Path(sys.argv[1]))\n"
        "book.append(trace.Started(id='start', at=0.0, trajectory='t'))\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.jsonl")], check=False)
    assert trace.read(tmp_path / "t.jsonl") == [trace.Started(id="start", at=0.0, trajectory="t")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"event":"ended","id":"x","at":1,"status":"finished","cause":"nowhere"}', "does not stand before it"),
        (b'{"event":"danced","id":"x","at":1}', "line 1 is no event"),
        (b"not json", "line 1 is no event"),
    ],
)
def test_what_is_no_ledger_is_refused_by_its_line(line: bytes, told: str) -> None:
    with pytest.raises(UserError, match=told):
        list(trace.events(line + b"\n"))


def test_ledgers_go_into_a_stream(tmp_path: Path) -> None:
    rows = trace.stream_table(trace.stream_rows(ledger()))
    bodies = "\n".join([*rows["body"].to_pylist(), ""])
    assert list(trace.events(bodies.encode())) == ledger()
    assert rows["trajectory"].unique().to_pylist() == ["t1"]


def test_a_trajectory_needs_a_beginning() -> None:
    with pytest.raises(UserError, match="no beginning"):
        trace.rebuild(ledger()[1:])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "posttrain.cli", *arguments], capture_output=True, text=True)


def test_the_commands_say_what_is_asked(tmp_path: Path) -> None:
    one = written(tmp_path / "one.jsonl", ledger())
    shown = run("trace", "show", str(one))
    assert shown.returncode == 0, shown.stderr
    assert "calls run(" in shown.stdout and "turn 2 (from turn 1)" in shown.stdout and "reward 1" in shown.stdout
    events: Any = ledger()
    events[-1] = msgspec.structs.replace(events[-1], status="failed")
    other = written(tmp_path / "other.jsonl", events)
    compared = run("trace", "diff", str(one), str(other))
    assert compared.returncode == 1 and "differs at outcome.status" in compared.stdout
    replayed = run("trace", "replay", str(one))
    assert (replayed.returncode, replayed.stdout.strip()) == (0, "all comes out the same")


def test_convert_prints_the_result_and_the_losses(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(anthropic_calls()[0][0]))
    done = run("convert", "--from", "anthropic", "--to", "openai_chat", str(file))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"][1] == {"role": "user", "content": "count"}
    assert "cache_control" in done.stderr
    wrong = run("convert", "--from", "anthropc", "--to", "openai_chat", str(file))
    assert wrong.returncode == 2 and "is no dialect" in wrong.stderr and "Traceback" not in wrong.stderr


def test_trajectories_of_several_agents_stay_plain_data() -> None:
    trajectory = trace.rebuild(ledger())
    assert isinstance(trajectory, Trajectory)
    assert msgspec.json.decode(msgspec.json.encode(trajectory), type=Trajectory) == trajectory
