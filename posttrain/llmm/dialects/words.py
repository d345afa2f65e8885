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
            Message: "",
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

Judged = Iterator[tuple[str, str]]


def _openai_chat(element: Any, role: str | None) -> Judged:
    match element:
        case Media(medium="video"):
            yield "medium", "it takes no video"
        case Media(medium="image", data=None, url=None, file=str()):
            yield "file", "it takes images by value or URL"
        case Media(medium="image", name=str()):
            yield "name", "its images have no names"
        case Media(medium="audio") if element.url or element.file or element.name:
            yield "url", "it takes sound by value"
        case Media(medium="document") if element.url or element.type or element.detail:
            yield (
                "type" if element.type else "url" if element.url else "detail",
                "its files have only data, id and name",
            )
        case Text(citations=tuple()) if role != "assistant":
            yield "citations", "only an assistant's text has annotations"
        case Message(role="user", parts=parts) if any(isinstance(p, ToolCall | Reasoning) for p in parts):
            yield "parts", "a user's message holds neither calls nor reasoning"
        case Message(role="assistant", parts=parts) if any(isinstance(p, Media | ToolResult) for p in parts):
            yield "parts", "an assistant's message holds no media and no results"
        case Choice(stop="pause" | "error" | "other" | "stop_sequence" | "refusal" as stop):
            yield "stop", f"it has no word for {stop}"


def _openai_responses(element: Any, role: str | None) -> Judged:
    match element:
        case Media(medium="audio" | "video" as medium):
            yield "medium", f"it takes no {medium}"
        case Media(medium="image", name=str()):
            yield "name", "its images have no names"
        case Media(medium="document", type=str()):
            yield "type", "its files have no type"
        case Text(citations=tuple()) if role != "assistant":
            yield "citations", "only an assistant's text has annotations"
        case Message(role="system" | "developer" | "user", parts=parts) if any(
            isinstance(p, ToolCall | Reasoning | Refusal) for p in parts
        ):
            yield "parts", "only an assistant's message holds calls, reasoning and refusals"
        case Message(role="assistant", parts=parts) if any(isinstance(p, Media | ToolResult) for p in parts):
            yield "parts", "an assistant's message holds no media and no results"
        case Choice(stop="pause" | "error" | "other" | "stop_sequence" | "refusal" as stop):
            yield "stop", f"it has no word for {stop}"
        case Choice(index=index) if index:
            yield "message", "it gives one sample"


def _anthropic_messages(element: Any, role: str | None) -> Judged:
    match element:
        case Media(medium="audio" | "video" as medium):
            yield "medium", f"it takes no {medium}"
        case Media(medium="image", name=str()):
            yield "name", "its images have no names"
        case Refusal():
            yield "text", "it is written as text"
        case Format(type="text" | "json" as kind):
            yield "type", f"it has no word for {kind}"
        case Message(role="developer"):
            yield "role", "it is written as system"
        case ToolChoice(names=tuple(names), mode=mode) if mode != "named" or len(names) != 1:
            yield "names", "it can only force one tool"
        case Choice(stop="filter" | "error" | "other" as stop):
            yield "stop", f"it has no word for {stop}"
        case Choice(index=index) if index:
            yield "message", "it gives one sample"
        case ToolCall(arguments=str(text)) if not _is_object(text):
            yield "arguments", "they are no JSON object"


def _google_genai(element: Any, role: str | None) -> Judged:
    match element:
        case Refusal():
            yield "text", "it is written as text"
        case Message(role="developer"):
            yield "role", "it is written as system"
        case ToolChoice(names=tuple(names), mode="named" | "required" as mode) if (mode == "named") != (
            len(names) == 1
        ):
            yield "mode", "it does not tell one forced tool from several allowed"
        case Choice(stop="pause" | "error" | "other" | "stop_sequence" | "refusal" as stop):
            yield "stop", f"it has no word for {stop}"
        case ToolCall(arguments=str(text)) if not _is_object(text):
            yield "arguments", "they are no JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


UNSAID: Final[Mapping[str, Callable[[Any, str | None], Judged]]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic_messages,
    "google_genai": _google_genai,
}
