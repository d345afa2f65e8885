"""The vendors' SDKs as readers of a stream: events in, the answer that the SDK makes of them out, as wire JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anthropic._models import construct_type
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from google.genai import types as google
from openai._models import construct_type as construct_openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from posttrain.llmm.ir.origin import Json


def _openai_chat(events: list[Json]) -> Json:
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
    return state.current_completion_snapshot.model_dump(mode="json", exclude_none=True)


_ANTHROPIC: Any = TypeAdapter(RawMessageStreamEvent)
_RESPONSES: Any = TypeAdapter(ResponseStreamEvent)


def _anthropic_messages(events: list[Json]) -> Json:
    message, buffers = None, {}
    for event in events:
        _ANTHROPIC.validate_python(event)
        read: Any = construct_type(value=event, type_=RawMessageStreamEvent)
        message = accumulate_event(event=read, current_snapshot=message, json_bufs=buffers)
    assert message is not None
    return message.model_dump(mode="json", exclude_none=True, exclude={"content": {"__all__": {"parsed_output"}}})


def _openai_responses(events: list[Json]) -> Json:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        _RESPONSES.validate_python(event)
        construct_openai(value=event, type_=ResponseStreamEvent)
    grown = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    final = events[-1]["response"]
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert final["output"] == items
    texts = [part["text"] for item in items for part in item.get("content", ()) if part["type"] == "output_text"]
    assert grown == "".join(texts)
    return final


def _google_genai(events: list[Json]) -> Json:
    """The SDK gives the events one by one; what they add up to is joined here, parts of one kind together."""
    parts: list[Json] = []
    last: Json = {}
    for event in events:
        read = google.GenerateContentResponse.model_validate(event)
        dumped = read.model_dump(mode="json", by_alias=True, exclude_none=True)
        for candidate in dumped.get("candidates", ()):
            for part in candidate.get("content", {}).get("parts", ()):
                if parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought"):
                    parts[-1]["text"] += part["text"]
                else:
                    parts.append(part)
        last |= {key: value for key, value in dumped.items() if key != "candidates"}
        for candidate in dumped.get("candidates", ()):
            last["candidates"] = [{**candidate, "content": {"role": "model", "parts": parts}}]
    return last


READERS: dict[str, Callable[[list[Json]], Json]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic_messages,
    "google_genai": _google_genai,
}
