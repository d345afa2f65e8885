"""What a dialect lifts it lowers to the same JSON: requests, answers, streams, for every field of the SDK's types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.wire import DialectError
from tests.llmm.dialects.roots import EVENTS, REQUESTS, RESPONSES
from tests.llmm.dialects.sdk import Object, examples, values

DIALECTS = sorted(REQUESTS)
laws = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)


def round_trip(name: str, kind: str, wire: Any) -> Any:
    it = dialect(name)
    if kind == "request":
        return it.lower_request(it.lift_request(wire))
    if kind == "response":
        return it.lower_response(it.lift_response(wire))
    return list(it.lower_stream(it.lift_stream(wire)))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("kind", ["request", "response", "event"])
def test_every_field_comes_back(name: str, kind: str) -> None:
    """One value for every alternative of every field of every type that the SDK's roots reach."""
    roots: list[Object] = {"request": [REQUESTS[name]], "response": [RESPONSES[name]], "event": EVENTS[name]}[kind]
    count = 0
    for example in examples(*roots):
        wire = [example.value] if kind == "event" else example.value
        assert round_trip(name, kind, wire) == wire, f"{example.type}.{example.field}"
        count += 1
    assert count > 50


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(data=st.data())
def test_any_request_comes_back(name: str, data: st.DataObject) -> None:
    wire = data.draw(values(REQUESTS[name]))
    assert round_trip(name, "request", wire) == wire


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(data=st.data())
def test_any_answer_comes_back(name: str, data: st.DataObject) -> None:
    wire = data.draw(values(RESPONSES[name]))
    assert round_trip(name, "response", wire) == wire


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(data=st.data())
def test_any_run_of_events_comes_back(name: str, data: st.DataObject) -> None:
    """Events of any kind in any order, as no vendor would send them."""
    roots = EVENTS[name]
    wire = [data.draw(values(data.draw(st.sampled_from(roots)), 3)) for _ in range(data.draw(st.integers(1, 4)))]
    assert round_trip(name, "event", wire) == wire


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(data=st.data())
def test_lifting_leaves_the_wire_as_it_was(name: str, data: st.DataObject) -> None:
    wire = data.draw(values(REQUESTS[name]))
    before = repr(wire)
    it = dialect(name)
    lifted = it.lift_request(wire)
    it.lower_request(lifted)["model"] = "changed"
    it.lower_request(lifted)
    assert repr(wire) == before


@pytest.mark.parametrize(
    ("name", "wire", "field"),
    [
        ("openai_chat", {"messages": {}}, "messages"),
        ("openai_chat", {"messages": [{"role": "user", "content": "hi"}, 5]}, "messages.1"),
        ("openai_chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
         "messages.0.content.0.text"),
        ("openai_chat", {"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]}]},
         "messages.0.tool_calls.0.function.name"),
        ("openai_responses", {"input": ["hi"]}, "input.0"),
        ("openai_responses", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
         "input.0.content.0.text"),
        ("anthropic_messages", {"messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi"}, {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}
        ]}]}, "messages.0.content.1.content.0.text"),
        ("anthropic_messages", {"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
        ("google_genai", {"contents": [{"role": "user", "parts": [{"text": "hi"}, None]}]}, "contents.0.parts.1"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_dialect_is_named_by_its_path(name: str, wire: Any, field: str) -> None:
    with pytest.raises(DialectError) as refused:
        dialect(name).lift_request(wire)
    assert refused.value.field == field
