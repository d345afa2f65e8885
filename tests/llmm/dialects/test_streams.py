"""A stream folds to the answer that it streams, in every dialect, and the vendor's own SDK reads it as that answer."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.wire import ABSENT
from posttrain.llmm.ir.chat import ChatResponse
from posttrain.llmm.ir.same import bare
from posttrain.llmm.ir.stream import Delta, End, Fold, Frame, PartBegin, PartDelta, PartEnd, fold, unfold
from tests.llmm.dialects.answers import answers
from tests.llmm.dialects.readers import READERS
from tests.llmm.dialects.roots import RESPONSES
from tests.llmm.dialects.sdk import examples

DIALECTS = sorted(RESPONSES)
laws = settings(
    max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)


def said(response: ChatResponse, name: str) -> ChatResponse:
    """What of an answer every dialect tells: not the total of tokens, nor who does not tell when it was made."""
    usage = response.usage
    if usage is not None:
        usage = msgspec.structs.replace(usage, total=None, cache_written=usage.cache_written or None)
    created = None if name in ("anthropic_messages", "google_genai") else response.created
    return bare(msgspec.structs.replace(response, usage=usage, created=created))


@given(response=answers(), size=st.integers(1, 9))
@laws
def test_an_answer_unfolds_to_what_folds_to_it(response: ChatResponse, size: int) -> None:
    assert fold(unfold(response, size)) == response


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(response=answers(), size=st.integers(1, 9))
def test_what_a_gateway_streams_is_what_it_would_have_answered(name: str, response: ChatResponse, size: int) -> None:
    it = dialect(name)
    whole = it.lift_response(it.lower_response(response))
    streamed = fold(it.lift_stream(it.lower_stream(unfold(response, size))))
    assert said(streamed, name) == said(whole, name) == said(response, name)


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(response=answers())
def test_an_answer_is_valid_by_the_sdk(name: str, response: ChatResponse) -> None:
    RESPONSES[name].source.model_validate(dialect(name).lower_response(response))


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(response=answers(), size=st.integers(1, 9))
def test_the_vendors_sdk_reads_the_stream_as_the_answer(name: str, response: ChatResponse, size: int) -> None:
    it = dialect(name)
    events = list(it.lower_stream(unfold(response, size)))
    final = READERS[name](events)
    assert said(it.lift_response(final), name) == said(response, name)


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(response=answers(), size=st.integers(1, 9))
def test_such_a_stream_comes_back_event_by_event(name: str, response: ChatResponse, size: int) -> None:
    it = dialect(name)
    events = list(it.lower_stream(unfold(response, size)))
    assert list(it.lower_stream(it.lift_stream(events))) == events


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(DIALECTS, 2)))
@settings(laws, max_examples=5)
@given(response=answers())
def test_a_stream_crosses_as_its_answer_does(source: str, target: str, response: ChatResponse) -> None:
    here, there = dialect(source), dialect(target)
    events = list(here.lower_stream(unfold(response, 4)))
    streamed = here.lift_stream(events)
    crossed = fold(there.lift_stream(there.lower_stream(map(_plain, streamed))))
    untimely = {source, target} & {"anthropic_messages", "google_genai"}  # these do not say when it was made
    told = next(iter(untimely), target)
    assert said(crossed, told) == said(response, told)


def _plain(frame: Frame) -> Frame:
    return Frame(deltas=frame.deltas)


@pytest.mark.parametrize("name", DIALECTS)
def test_any_answer_of_the_sdk_unfolds_and_folds(name: str) -> None:
    """An answer with any field of the SDK's types, as a stream of the IR, folds to the same answer bare."""
    it = dialect(name)
    for example in examples(RESPONSES[name]):
        whole = it.lift_response(example.value)
        assert bare(fold(unfold(whole))) == bare(whole), f"{example.type}.{example.field}"


@pytest.mark.parametrize("name", DIALECTS)
@laws
@given(response=answers())
def test_parts_begin_before_they_grow_and_end_once(name: str, response: ChatResponse) -> None:
    it = dialect(name)
    deltas = [d for frame in it.lift_stream(it.lower_stream(unfold(response, 3))) for d in frame.deltas]
    begun: set[int] = set()
    for delta in deltas:
        match delta:
            case PartBegin():
                assert delta.part not in begun
                begun.add(delta.part)
            case PartDelta() | PartEnd():
                assert delta.part in begun
    assert isinstance(deltas[-1], End)


def test_late_words_after_a_call_are_kept_in_every_dialect() -> None:
    """A text that goes on after a call began: where blocks follow each other, a new block takes the rest."""
    from posttrain.llmm.ir.chat import Text, ToolCall
    from posttrain.llmm.ir.stream import Begin, ChoiceEnd

    deltas: list[Delta] = [
        Begin(id="r", model="m", created=1), PartBegin(value=Text(text=""), part=0), PartDelta(text="one ", part=0),
        PartBegin(value=ToolCall(name="f", id="c", arguments=""), part=1), PartDelta(text="{}", part=1),
        PartDelta(text="two", part=0), PartEnd(part=1), ChoiceEnd(stop="tool_calls"), End(),
    ]  # fmt: skip
    for name in DIALECTS:
        it = dialect(name)
        folded = fold(it.lift_stream(it.lower_stream([Frame(deltas=(delta,)) for delta in deltas])))
        texts = "".join(part.text for part in folded.choices[0].message.parts if isinstance(part, Text))
        assert texts == "one two", name


def test_a_stream_that_breaks_off_folds_to_what_had_come() -> None:
    folded = Fold()
    for frame in unfold(_hello())[:3]:
        for delta in frame.deltas:
            folded.add(delta)
    assert folded.response().choices[0].stop is None
    assert ABSENT.startswith("~")


def _hello() -> Any:
    from posttrain.llmm.ir.chat import Choice, Message, Text

    message = Message(role="assistant", parts=(Text(text="hello"),))
    return ChatResponse(choices=(Choice(message=message, stop="end"),), id="r")
