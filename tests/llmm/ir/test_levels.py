"""The levels of the ladder: JSON and Arrow forms, trajectories from calls and back, the invariants of tokens."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.llmm.dialects import dialect
from posttrain.llmm.ir import (
    Call,
    ChatRequest,
    ChatResponse,
    Choice,
    Message,
    Outcome,
    Reasoning,
    Span,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    arrow,
    climb,
    from_json,
    loss_mask,
    policy_versions,
    to_json,
)
from posttrain.llmm.ir.same import first_difference, same
from posttrain.llmm.ir.tokens import wrong
from tests.llmm.conversations import anthropic_calls
from tests.llmm.dialects.roots import REQUESTS, RESPONSES
from tests.llmm.dialects.sdk import examples

laws = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_whatever_is_lifted_has_a_json_form(name: str) -> None:
    it = dialect(name)
    for example in examples(REQUESTS[name]):
        value = it.lift_request(example.value)
        again = from_json(to_json(value))
        assert isinstance(again, ChatRequest) and it.lower_request(again) == example.value
    for example in examples(RESPONSES[name]):
        answer = from_json(to_json(it.lift_response(example.value)))
        assert isinstance(answer, ChatResponse) and it.lower_response(answer) == example.value


def test_a_newer_document_is_refused_and_an_older_one_is_read() -> None:
    text = to_json(ChatRequest(messages=())).decode()
    with pytest.raises(UserError, match="newer version"):
        from_json(text.replace('"llmm":1', '"llmm":2'))
    with pytest.raises(UserError, match="no document of the IR"):
        from_json('{"llmm":1,"value":{"kind":"letter"}}')
    assert from_json(text) == ChatRequest(messages=())


def user(text: str) -> Message:
    return Message(role="user", parts=(Text(text=text),))


def said(*parts: Any) -> ChatResponse:
    return ChatResponse(choices=(Choice(message=Message(role="assistant", parts=parts)),), id="r")


def call(number: int, messages: list[Message], response: ChatResponse | None) -> Call:
    return Call(id=f"c{number}", request=ChatRequest(messages=tuple(messages), model="m"), response=response)


@st.composite
def lines(draw: st.DrawFn) -> list[Call]:
    """Calls that go on, go back, edit, drop reasoning or begin anew."""
    calls: list[Call] = []
    histories: list[list[Message]] = [[]]
    for number in range(draw(st.integers(1, 6))):
        history = list(draw(st.sampled_from(histories)))
        if history and draw(st.integers(0, 4)) == 0:
            place = draw(st.integers(0, len(history) - 1))
            history[place] = (
                user("edited") if draw(st.booleans()) else msgspec.structs.replace(history[place], parts=())
            )
        history += [user(draw(st.sampled_from("abc"))) for _ in range(draw(st.integers(0, 2)))]
        parts = [Text(text=draw(st.sampled_from(["x", "y"])))]
        response = said(*parts) if draw(st.integers(0, 5)) else None
        calls.append(call(number, history, response))
        histories.append([*history, response.choices[0].message] if response else history)
    return calls


@given(calls=lines())
@laws
def test_a_trajectory_is_its_calls(calls: list[Call]) -> None:
    trajectory = climb.lift("t", calls)
    assert climb.lower(trajectory) == calls
    assert all(turn.parent is None or turn.parent < turn.index for turn in trajectory.turns)


@given(calls=lines())
@laws
def test_nothing_is_kept_twice(calls: list[Call]) -> None:
    """A turn keeps of its request what its line of parents does not have."""
    for turn in climb.lift("t", calls).turns:
        request = calls[turn.index].request
        assert request is not None and turn.call.request is not None
        assert turn.call.request.messages == ()
        before = 0 if turn.parent is None else len(request.messages) - len(turn.seen)
        assert len(turn.seen) + before == len(request.messages)


def test_an_agents_calls_are_one_line_whatever_form_the_client_repeats_them_in() -> None:
    it = dialect("anthropic_messages")
    calls = [
        Call(id=f"c{n}", request=it.lift_request(request), response=it.lift_response(response))
        for n, (request, response) in enumerate(anthropic_calls())
    ]
    assert [turn.parent for turn in climb.lift("t", calls).turns] == [None, 0, 1]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ([user("q"), Message(role="assistant", parts=(Text(text="other"),)), user("n")], "edited"),
        ([user("q"), Message(role="assistant", parts=(Text(text="a"),)), user("n")], "reasoning dropped"),
        ([user("q")], "shortened"),
        ([user("something else"), user("n")], "another conversation"),
    ],
)
def test_an_edited_history_forks_with_its_reason(second: list[Message], reason: str) -> None:
    first = call(0, [user("q")], said(Reasoning(text="hm"), Text(text="a")))
    turns = climb.lift("t", [first, call(1, second, said(Text(text="b")))]).turns
    assert (turns[1].parent, turns[1].fork) == (None, reason)


def test_cleared_tool_results_fork() -> None:
    asked = said(ToolCall(name="f", arguments="{}", id="1"))
    result = Message(role="tool", parts=(ToolResult(call="1", content=(Text(text="long"),)),))
    cleared = Message(role="tool", parts=(ToolResult(call="1", content=(Text(text="[cleared]"),)),))
    history = [user("q"), asked.choices[0].message]
    calls = [
        call(0, [user("q")], asked),
        call(1, [*history, result], said(Text(text="a"))),
        call(2, [*history, cleared], None),
    ]  # fmt: skip
    turns = climb.lift("t", calls).turns
    assert turns[1].parent == 0 and turns[2].parent == 0 and turns[2].fork == "went back"


def test_the_same_said_in_two_forms_is_the_same() -> None:
    one = Message(
        role="assistant", parts=(Text(text="", residual={"a": {"b": 1}}), ToolCall(name="f", arguments='{"a":1}'))
    )
    other = Message(role="assistant", parts=(ToolCall(name="f", arguments={"a": 1}),))
    assert same(one, other)
    assert not same(one, Message(role="assistant", parts=(ToolCall(name="f", arguments={"a": 2}),)))


def tokens() -> Tokens:
    spans = (
        Span(0, 2, "template"),
        Span(2, 4, "policy", True, policy=3),
        Span(4, 5, "tool"),
        Span(5, 6, "policy", True, policy=4),
    )
    return Tokens(ids=(1, 2, 3, 4, 5, 6), spans=spans, logprobs=(0, 0, -0.5, -1.5, 0, -2.5))


def test_the_mask_is_one_exactly_on_what_the_policy_sampled() -> None:
    assert wrong(tokens()) is None
    assert loss_mask(tokens()) == [0, 0, 1, 1, 0, 1]
    assert policy_versions(tokens()) == [(3, 2, 4), (4, 5, 6)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ids": (1, 2)}, "tile"),
        ({"spans": (Span(0, 6, "tool", True),)}, "did not sample"),
        ({"logprobs": (0.0,)}, "log-probabilities for"),
        ({"logprobs": (-1, 0, -0.5, -1.5, 0, -2.5)}, "not sampled"),
    ],
)
def test_broken_tokens_say_what_is_wrong(change: dict[str, Any], told: str) -> None:
    assert told in str(wrong(msgspec.structs.replace(tokens(), **change)))


def test_a_trajectory_is_a_row_of_the_experience_stream_and_back() -> None:
    turn = Turn(index=0, call=Call(id="c"), seen=(user("q"),), tokens=tokens())
    trajectory = Trajectory(
        id="t",
        turns=(turn,),
        task="sum",
        group="g",
        outcome=Outcome(status="finished", reward=0.5),
        started=1.5,
        seconds=2.0,
    )
    table = arrow.table([trajectory])
    (row,) = table.to_pylist()
    assert (row["trajectory"], row["status"], row["reward"], row["loss_mask"]) == (
        "t",
        "finished",
        0.5,
        [0, 0, 1, 1, 0, 1],
    )
    assert row["policy_versions"] == [{"version": 3, "start": 2, "end": 4}, {"version": 4, "start": 5, "end": 6}]
    assert arrow.trajectory(row) == trajectory


def test_a_forked_trajectory_is_a_row_for_each_line() -> None:
    turns = (
        Turn(index=0, call=Call(id="a"), tokens=tokens()),
        Turn(index=1, call=Call(id="b"), parent=0, tokens=tokens()),
        Turn(index=2, call=Call(id="c"), fork="edited", tokens=tokens()),
    )
    rows = arrow.rows(Trajectory(id="t", turns=turns))
    assert [row["trajectory"] for row in rows] == ["t#0", "t#1"] and {row["status"] for row in rows} == {"aborted"}


@given(
    one=st.recursive(
        st.integers(0, 3) | st.text(max_size=2),
        lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=1), v, max_size=3),
    ),
    data=st.data(),
)
@laws
def test_the_first_difference_is_none_exactly_for_equals(one: Any, data: st.DataObject) -> None:
    assert first_difference(one, json.loads(json.dumps(one))) is None
    other = data.draw(st.just(one) | st.integers(5, 9))
    assert (first_difference(one, other) is None) == (one == other)
