"""What a dialect lifts it lowers to the same JSON: requests, answers, streams, for every field of the SDK's types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.llmm.dialects import dialect
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
