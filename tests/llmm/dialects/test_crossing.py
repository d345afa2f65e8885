"""A crossing loses nothing that it does not list: every field of every SDK, to every other dialect."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.crossing import Crossing, convert, fitted, translate
from posttrain.llmm.ir.same import bare, leaves
from tests.llmm.dialects.roots import REQUESTS, RESPONSES
from tests.llmm.dialects.sdk import examples, values

PAIRS = list(itertools.permutations(sorted(REQUESTS), 2))
laws = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
# Which message, which choice and how messages are grouped is each dialect's own way of putting it.
FORM = {"Message.joined", "Message.role", "Choice.index", "ToolCall.id", "ToolResult.call"}


def unlisted(source: str, target: str, wire: Any, kind: Any) -> list[str]:
    """What is said in `wire`, is not said any more on the other side, and stands in no loss."""
    crossing = convert(source, target, wire, kind)
    here, there = dialect(source), dialect(target)
    lift = (here.lift_request, there.lift_request) if kind == "request" else (here.lift_response, there.lift_response)
    before, after = lift[0](wire), bare(lift[1](crossing.wire))
    left = Counter((name, _told(name, value)) for _, name, value in leaves(after))
    texts = "\0".join(str(value) for _, name, value in leaves(after) if name.endswith(".text"))
    paths = tuple(loss.path for loss in crossing.losses)
    missing = []
    for path, name, value in leaves(before):
        if name in FORM or any(path == lost or path.startswith(f"{lost}.") for lost in paths):
            continue
        if left[name, _told(name, value)] > 0:
            left[name, _told(name, value)] -= 1
        elif not (name.endswith(".text") and str(value) in texts):
            missing.append(f"{path} ({name} = {value!r})")
    return missing


def _told(name: str, value: Any) -> str:
    """A value as it is compared: arguments whether they came as text or as an object."""
    if name == "ToolCall.arguments" and isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value or "{}")
    return repr(value)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_every_field_is_there_or_listed(source: str, target: str, kind: str) -> None:
    root = (REQUESTS if kind == "request" else RESPONSES)[source]
    wrong = {}
    for example in examples(root):
        if missing := unlisted(source, target, example.value, kind):
            wrong[f"{example.type}.{example.field}"] = missing
    assert not wrong


@pytest.mark.parametrize(("source", "target"), PAIRS)
@laws
@given(data=st.data())
def test_any_request_is_there_or_listed(source: str, target: str, data: st.DataObject) -> None:
    wire = data.draw(values(REQUESTS[source]))
    assert not unlisted(source, target, wire, "request")


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_at_home_nothing_is_lost(name: str) -> None:
    for example in examples(REQUESTS[name]):
        assert convert(name, name, example.value) == Crossing(example.value, ())


CONVERSATION: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "be good", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sealed"},
                {"type": "redacted_thinking", "data": "secret"},
                {"type": "text", "text": "two at once"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
                    ],
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("openai_chat", {"cache_control", "signature", "encrypted", "error"}),
        ("openai_responses", {"cache_control", "signature", "encrypted", "error"}),
        ("google_genai", {"cache_control", "signature", "encrypted"}),
    ],
)
def test_what_gateways_lose_is_carried_or_named(target: str, lost: set[str]) -> None:
    crossing = convert("anthropic_messages", target, CONVERSATION)
    assert {loss.path.rpartition(".")[2] for loss in crossing.losses} == lost
    back = dialect(target).lift_request(crossing.wire)
    calls = [part for message in back.messages for part in message.parts if type(part).__name__ == "ToolCall"]
    results = [part for message in back.messages for part in message.parts if type(part).__name__ == "ToolResult"]
    assert [call.id for call in calls] == ["t1", "t2"] == [result.call for result in results]  # type: ignore
    assert [type(part).__name__ for part in results[1].content] == ["Media"]  # type: ignore[union-attr]


def test_calls_without_ids_get_ids_and_their_results_the_same() -> None:
    """Google gives calls no ids: two calls of one function, answered in order, with another one's in between."""
    call = {"functionCall": {"name": "f", "args": {"n": 1}}}
    other = {"functionCall": {"name": "g", "args": {}}}
    answer = {"functionResponse": {"name": "f", "response": {"output": "1"}}}
    body = {
        "contents": [
            {"role": "model", "parts": [call, other, call]},
            {"role": "user", "parts": [answer, answer, {"functionResponse": {"name": "g", "response": {"k": 2}}}]},
        ]
    }
    wire = translate("google_genai", "openai_chat", body)
    assert [each["id"] for each in wire["messages"][0]["tool_calls"]] == ["call_0", "call_1", "call_2"]
    assert [each["tool_call_id"] for each in wire["messages"][1:]] == ["call_0", "call_2", "call_1"]


def test_results_that_come_in_another_order_keep_their_calls() -> None:
    calls = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in (("a", "f"), ("b", "g"))
    ]
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in ("b", "a")]
    body = {"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": calls}, *results]}
    parts = translate("openai_chat", "google_genai", body)["contents"][1]["parts"]
    assert [(p["functionResponse"]["id"], p["functionResponse"]["name"]) for p in parts] == [("b", "g"), ("a", "f")]
    blocks = translate("openai_chat", "anthropic_messages", body)["messages"][1]["content"]
    assert [block["tool_use_id"] for block in blocks] == ["b", "a"]


def test_a_seal_reaches_no_other_vendor() -> None:
    request = dialect("anthropic_messages").lift_request(CONVERSATION)
    assert "sealed" not in repr(fitted(request, "google_genai")) and "secret" not in repr(
        fitted(request, "google_genai")
    )
    assert translate("anthropic_messages", "claude_code", CONVERSATION) == CONVERSATION
