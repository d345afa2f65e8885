"""Which words of the IR a dialect has none for: what a crossing to it loses, whatever it came from.

`LACKS[dialect][Type]` are fields that the dialect cannot say at all. `UNSAID[dialect]` judges an element whose loss
depends on its value: it gives the field and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from posttrain.llmm.ir.chat import (
    ChatRequest,
    ChatResponse,
    Choice,
    Citation,
    Failure,
    Format,
    Logprob,
    Media,
    Message,
    Reasoning,
    Refusal,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

LACKS: Final[Mapping[str, Mapping[type, frozenset[str]]]] = {
    name: {kind: frozenset(fields.split()) for kind, fields in lacks.items()}
    for name, lacks in {
        "openai_chat": {
            ChatRequest: "previous",
            Thinking: "enabled budget summary",
            Text: "signature",
            Reasoning: "summary encrypted signature",
            ToolCall: "signature",
            ToolResult: "name error value free",
            Media: "signature",
            Citation: "quote",
            Logprob: "id",
            Choice: "stop_sequence",
        },
        "openai_responses": {
            Sampling: "top_k seed n presence_penalty frequency_penalty stop logprobs",
            Thinking: "enabled budget",
            Message: "name",
            Text: "signature",
            Reasoning: "signature",
            ToolCall: "signature",
            ToolResult: "name error value",
            Media: "signature",
            Citation: "quote",
            Logprob: "id",
            Choice: "stop_sequence",
            Failure: "type",
        },
        "anthropic_messages": {
            ChatRequest: "previous metadata",
            Sampling: "seed n presence_penalty frequency_penalty logprobs top_logprobs",
            Thinking: "summary",
            Format: "name description strict",
            Message: "name",
            Text: "signature",
            Reasoning: "summary",
            ToolCall: "signature free",
            ToolResult: "name value free",
            Media: "detail signature",
            Citation: "start end",
            Tool: "free",
            ChatResponse: "created",
            Choice: "logprobs",
            Usage: "total",
            Failure: "code",
        },
        "google_genai": {
            ChatRequest: "previous user metadata stream",
            Thinking: "summary enabled",
            Format: "name description strict",
            Message: "name",
            Text: "citations",
            Reasoning: "summary encrypted",
            ToolCall: "free",
            ToolResult: "free",
            Media: "detail",
            Tool: "strict free",
            ToolChoice: "parallel",
            ChatResponse: "created",
            Choice: "stop_sequence",
            Logprob: "bytes",
            Usage: "cache_written",
        },
    }.items()
}

Judged = Iterator[tuple[str, str]]  # (field, or "" for the whole element; why it cannot be said)
_ONE_SAMPLE = "it gives one sample"
_STOPS: Final = {
    "openai_chat": ("pause", "error", "other", "stop_sequence", "refusal"),
    "openai_responses": ("pause", "error", "other", "stop_sequence", "refusal"),
    "anthropic_messages": ("filter", "error", "other"),
    "google_genai": ("pause", "error", "other", "stop_sequence", "refusal"),
}


def _openai_chat(element: Any, role: str | None) -> Judged:
    yield from _common("openai_chat", element)
    match element:
        case Media():
            yield from _chat_media(element)
        case Text(citations=tuple()) if role != "assistant":
            yield "citations", "only an assistant's text has annotations"
        case Message(parts=parts) if element.role != "assistant" and _any(parts, ToolCall | Reasoning):
            yield "parts", "only an assistant's message holds calls and reasoning"
        case Message(role="assistant", parts=parts) if _any(parts, ToolResult):
            yield "parts", "an assistant's message holds no results"
        case ToolChoice(names=tuple(), mode=None):
            yield "names", "it allows tools only with a mode"
        case ChatResponse(created=float(created)) if created != int(created):
            yield "created", "it counts whole seconds"


def _chat_media(element: Media) -> Judged:
    medium = element.medium
    if medium == "video":
        yield "medium", "it takes no video"
    if medium == "image" and element.data is None and element.url is None and element.file is not None:
        yield "file", "it takes images by value or URL"
    if medium == "image" and element.data is None and element.type is not None:
        yield "type", "an image by URL has no type"
    if medium in ("image", "audio") and element.name is not None:
        yield "name", f"its {medium}s have no names"
    if medium == "audio":
        for field in ("url", "file", "detail"):
            if getattr(element, field) is not None:
                yield field, "it takes sound by value"
    if medium in ("document", "video"):
        for field in ("type", "url", "detail"):
            if getattr(element, field) is not None:
                yield field, "its files have data, id and name"


def _openai_responses(element: Any, role: str | None) -> Judged:
    yield from _common("openai_responses", element)
    match element:
        case Media(medium=medium):
            if medium in ("audio", "video"):
                yield "medium", f"it takes no {medium}"
            if medium == "image" and element.name is not None:
                yield "name", "its images have no names"
            if element.type is not None and (medium != "image" or element.data is None):
                yield "type", "only an image by value has a type"
        case Text(citations=tuple()) if role != "assistant":
            yield "citations", "only an assistant's text has annotations"
        case Message(parts=parts) if element.role != "assistant" and _any(parts, ToolCall | Reasoning | Refusal):
            yield "parts", "only an assistant's message holds calls, reasoning and refusals"
        case Message(role="assistant", parts=parts) if _any(parts, Media | ToolResult):
            yield "parts", "an assistant's message holds no media and no results"
        case ToolChoice(names=tuple(), mode=None):
            yield "names", "it allows tools only with a mode"
        case Choice():
            yield from _one_sample(element)
            yield from _told_by_calls(element)
            if element.logprobs is not None and not _any(element.message.parts, Text):
                yield "logprobs", "they stand on a text"


def _anthropic_messages(element: Any, role: str | None) -> Judged:
    yield from _common("anthropic_messages", element)
    match element:
        case Media(medium="audio" | "video" as medium):
            yield "", f"it takes no {medium}"
        case Media():
            if element.medium == "image" and element.name is not None:
                yield "name", "its images have no names"
            if element.type is not None and element.data is None:
                yield "type", "only media by value have a type"
        case Format(type="text" | "json" as kind):
            yield "type", f"it has no word for {kind}"
        case Message(role="developer"):
            yield "role", "it is written as system"
        case ToolChoice(names=tuple(names), mode=mode) if mode != "named" or len(names) != 1:
            yield "names", "it can only force one tool"
        case Choice():
            yield from _one_sample(element)
        case Usage(input=int(read)) if read < (element.cached or 0) + (element.cache_written or 0):
            yield "input", "it counts what the cache gave apart, and that is more"
        case ChatResponse() if element.error is not None:
            for field in ("choices", "id", "model", "usage"):
                if getattr(element, field):
                    yield field, "an error has nothing beside it"


def _google_genai(element: Any, role: str | None) -> Judged:
    yield from _common("google_genai", element)
    match element:
        case Media():
            if element.type is None or element.type.partition("/")[0] not in ("image", "audio", "video"):
                if element.medium != "document":
                    yield "medium", "it is told by the MIME type alone"
            elif element.medium != element.type.partition("/")[0]:
                yield "medium", "it is told by the MIME type alone"
            if element.file is not None:
                yield "file", "it is written as a URI"
        case Format(type="schema", schema=None):
            yield "type", "a schema is missing"
        case Message(role="developer"):
            yield "role", "it is written as system"
        case ToolChoice(names=tuple(names), mode="named" | "required" as mode):
            if (mode == "named") != (len(names) == 1):
                yield "mode", "it does not tell one forced tool from several allowed"
        case Choice():
            yield from _told_by_calls(element)


def _common(name: str, element: Any) -> Judged:
    match element:
        case Choice(stop=stop) if stop in _STOPS[name]:
            yield "stop", f"it has no word for {stop}"
        case Refusal() if name in ("anthropic_messages", "google_genai"):
            yield "text", "it is written as text"
        case ToolCall(free=True) if name in ("anthropic_messages", "google_genai"):
            yield "arguments", "they are wrapped in an object"
        case ToolCall(arguments=str(text)) if name in ("anthropic_messages", "google_genai"):
            if not _is_object(text):
                yield "arguments", "they are no JSON object"


def _one_sample(choice: Choice) -> Judged:
    if choice.index:
        yield "", _ONE_SAMPLE


def _told_by_calls(choice: Choice) -> Judged:
    """These vendors do not say that an answer ended for its calls: it shows."""
    calls = _any(choice.message.parts, ToolCall)
    if (choice.stop == "end" and calls) or (choice.stop == "tool_calls" and not calls):
        yield "stop", "it is told by whether there are calls"


def _any(parts: tuple[Any, ...], kinds: Any) -> bool:
    return any(isinstance(part, kinds) for part in parts)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


JUDGED: Final = frozenset((Media, Text, Message, ToolChoice, ChatResponse, Choice, Format, Usage, Refusal, ToolCall))
UNSAID: Final[Mapping[str, Callable[[Any, str | None], Judged]]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic_messages,
    "google_genai": _google_genai,
}
