"""Answers of the IR as a gateway makes them, at random: what every dialect has a word for."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from posttrain.llmm.ir.chat import ChatResponse, Choice, Message, Part, Reasoning, Text, ToolCall, Usage

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=30)
NAMES = st.sampled_from(["search", "run_code", "read"])
OBJECTS = st.dictionaries(
    st.sampled_from(["a", "b", "é"]), st.integers(-5, 5) | WORDS | st.booleans() | st.none(), max_size=3
)


@st.composite
def answers(draw: st.DrawFn) -> ChatResponse:
    """One sample: perhaps reasoning, perhaps text, then calls with ids that are told apart."""
    parts: list[Part] = []
    if draw(st.booleans()):
        parts.append(Reasoning(text=draw(WORDS)))
    if draw(st.booleans()):
        parts.append(Text(text=draw(WORDS)))
    for index in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(OBJECTS), ensure_ascii=draw(st.booleans()))
        parts.append(ToolCall(name=draw(NAMES), arguments=arguments, id=f"call_{index}"))
    calls = any(isinstance(part, ToolCall) for part in parts)
    stop = "tool_calls" if calls else draw(st.sampled_from(["end", "length"]))
    usage = Usage(input=draw(st.integers(5, 99)), output=draw(st.integers(9, 99)), cached=3, reasoning=2)
    choice = Choice(message=Message(role="assistant", parts=tuple(parts)), stop=stop)  # type: ignore[arg-type]
    return ChatResponse(choices=(choice,), id="resp1", model="m", created=1700000000, usage=usage)
