"""Answers: how they ended, usage, errors."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.anthropic_messages.blocks import lift_content, lower_blocks
from posttrain.llmm.dialects.wire import absent, done, note, own, put, recoded, rest
from posttrain.llmm.ir.chat import ChatResponse, Choice, Failure, Message, Stop, Usage
from posttrain.llmm.ir.origin import Json, Residual

STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "length",
}
STOP_WORDS: dict[Stop, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
    "refusal": "refusal",
    "filter": "refusal",
}
_RESPONSE = frozenset(("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    if wire.get("type") == "error":
        return ChatResponse(
            choices=(), error=lift_error(wire.get("error")), residual=rest(NAME, wire, {"type", "error"})
        )
    residual = absent(NAME, rest(NAME, wire, _RESPONSE), wire, ("type", "role", "usage"))
    reason, usage = wire.get("stop_reason"), wire.get("usage")
    choice = Choice(
        message=Message(role="assistant", parts=tuple(lift_content(wire.get("content"), "content"))),
        stop=lift_stop(reason),
        stop_sequence=wire.get("stop_sequence"),
        residual=stop_residual(wire, reason),
    )
    return ChatResponse(
        choices=(choice,),
        id=wire.get("id"),
        model=wire.get("model"),
        usage=None if usage is None else lift_usage(usage),
        residual=residual,
    )


def stop_residual(wire: Json, reason: Any) -> Residual | None:
    """Notes on how the end was said."""
    residual = absent(NAME, None, wire, ("stop_reason", "stop_sequence"))
    if reason is not None and STOP_WORDS.get(lift_stop(reason)) != reason:  # type: ignore[arg-type]
        residual = note(NAME, residual, stop_reason=reason)
    return residual


def lift_stop(reason: Any) -> Stop | None:
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "end_turn")


def lower_response(response: ChatResponse) -> Json:
    """An answer of several samples gives its first."""
    out = own(NAME, response.residual)
    if response.error is not None:
        out["type"], out["error"] = "error", lower_error(response.error)
        return done(out)
    choice = response.choices[0] if response.choices else Choice(message=Message(role="assistant"))
    out["type"], out["role"] = "message", "assistant"
    out["content"] = lower_blocks(choice.message.parts)
    notes = own(NAME, choice.residual)
    out["stop_reason"] = lower_stop(choice.stop, notes.get("~stop_reason"))
    out["stop_sequence"] = choice.stop_sequence
    for key in notes.get("~absent", ()):
        del out[key]
    usage = response.usage
    if usage is not None or "usage" not in out:
        out["usage"] = lower_usage(Usage(input=0, output=0) if usage is None else usage)
    put(out, id=response.id, model=response.model)
    return done(out)


_USAGE = frozenset(("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))


def lift_usage(wire: Json) -> Usage:
    get = wire.get
    fresh, cached, written = get("input_tokens"), get("cache_read_input_tokens"), get("cache_creation_input_tokens")
    details, known = get("output_tokens_details"), _USAGE
    residual = rest(NAME, wire, known)
    reasoning = None
    if isinstance(details, dict):
        reasoning = details.get("thinking_tokens")
        left = {key: value for key, value in details.items() if value is None or key != "thinking_tokens"}
        residual = note(NAME, residual, details=left)
        del residual[NAME]["output_tokens_details"]
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=get("output_tokens"), cached=cached, cache_written=written, reasoning=reasoning, residual=residual,
    )  # fmt: skip


def lower_usage(usage: Usage) -> Json:
    out = own(NAME, usage.residual)
    cached, written = usage.cached, usage.cache_written
    fresh = None if usage.input is None else max(0, usage.input - (cached or 0) - (written or 0))
    put(
        out, input_tokens=fresh, output_tokens=usage.output, cache_read_input_tokens=cached,
        cache_creation_input_tokens=written,
    )  # fmt: skip
    details = dict(out.get("~details", {}))
    put(details, thinking_tokens=usage.reasoning)
    if details or "~details" in out:
        out["output_tokens_details"] = details
    return done(out)


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    residual = absent(NAME, rest(NAME, wire, {"type", "message"}), wire, ("message",))
    return Failure(message=str(wire.get("message", "")), type=wire.get("type"), residual=residual)


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, type=error.type or "api_error")
    return done(out)
