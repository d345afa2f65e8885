"""Answers: samples with their ends and log-probabilities, usage, errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.openai_chat.logprobs import lift_logprobs, lower_logprobs
from posttrain.llmm.dialects.openai_chat.messages import lift_assistant, lower_assistant
from posttrain.llmm.dialects.openai_usage import Counts
from posttrain.llmm.dialects.wire import DialectError, absent, as_object, done, each, note, own, put, recoded, rest
from posttrain.llmm.ir.chat import ChatResponse, Choice, Failure, Stop
from posttrain.llmm.ir.origin import Json

STOPS: dict[str, Stop] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "filter",
    "function_call": "tool_calls",
}
STOP_WORDS: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "filter": "content_filter",
    "refusal": "content_filter",
}
_RESPONSE = frozenset(("id", "model", "created", "choices", "usage", "object", "error"))
_CHOICE = frozenset(("index", "message", "finish_reason", "logprobs"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = rest(NAME, wire, _RESPONSE)
    if wire.get("object") != "chat.completion":
        residual = absent(NAME, residual, wire, ("object",))
        residual = residual if "object" not in wire else note(NAME, residual, object=wire["object"])
    usage, error = wire.get("usage"), wire.get("error")
    choices = wire.get("choices")
    if choices is None:
        residual = absent(NAME, residual, wire, ("choices",))
    return ChatResponse(
        choices=() if choices is None else tuple(each(choices, "choices", _lift_sample)),
        id=wire.get("id"),
        model=wire.get("model"),
        created=wire.get("created"),
        usage=None if usage is None else lift_usage(usage),
        error=None if error is None else lift_error(error),
        residual=residual,
    )


def lower_response(response: ChatResponse) -> Json:
    out = own(NAME, response.residual)
    out["object"] = out.get("~object", "chat.completion")
    out["choices"] = [_lower_sample(choice) for choice in response.choices]
    put(out, id=response.id, model=response.model, created=whole_seconds(response.created))
    if response.usage is not None:
        out["usage"] = lower_usage(response.usage)
    if response.error is not None:
        out["error"] = lower_error(response.error)
    return done(out)


def whole_seconds(seconds: float | None) -> Any:
    """`created` as this dialect writes it."""
    return int(seconds) if isinstance(seconds, float) else seconds


def _lift_sample(wire: Json) -> Choice:
    said = as_object(wire.get("message"), "message")
    try:
        message = lift_assistant(said)
    except DialectError as problem:
        raise problem.within("message") from None
    if missing := [key for key in ("content", "refusal") if key not in said]:
        message = msgspec.structs.replace(message, residual=note(NAME, message.residual, absent=missing))
    reason, residual = wire.get("finish_reason"), rest(NAME, wire, _CHOICE)
    stop = lift_stop(reason)
    if reason is not None and STOP_WORDS.get(stop) != reason:  # type: ignore[arg-type]
        residual = note(NAME, residual, finish_reason=reason)
    logprobs, left = lift_logprobs(wire.get("logprobs"))
    if left is not None:
        residual = note(NAME, residual, logprobs=left)
    residual = absent(NAME, residual, wire, ("index", "finish_reason", "logprobs"))
    return Choice(message=message, index=wire.get("index", 0), stop=stop, logprobs=logprobs, residual=residual)


def lift_stop(reason: Any) -> Stop | None:
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "stop")


def _lower_sample(choice: Choice) -> Json:
    out = own(NAME, choice.residual)
    message = lower_assistant(choice.message, flat=True)
    gone = choice.message.residual.get(NAME, {}).get("~absent", ()) if choice.message.residual else ()
    for key in ("content", "refusal"):
        if key not in message and key not in gone:
            message[key] = None
    out["message"], out["index"] = message, choice.index
    out["finish_reason"] = lower_stop(choice.stop, out.get("~finish_reason"))
    out["logprobs"] = lower_logprobs(choice.logprobs, out.get("~logprobs"))
    return done(out)


_COUNTS: Final = Counts(NAME, "prompt_tokens", "completion_tokens", whole=False)
lift_usage, lower_usage = _COUNTS.lift, _COUNTS.lower


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    code = wire.get("code")
    return Failure(
        message=str(wire.get("message", "")),
        type=wire.get("type"),
        code=None if code is None else str(code),
        residual=absent(NAME, rest(NAME, wire, {"message", "type", "code"}), wire, ("message",)),
    )


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, type=error.type, code=error.code)
    return done(out)
