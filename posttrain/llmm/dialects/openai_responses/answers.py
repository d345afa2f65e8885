"""Answers: their items, how they ended, usage, errors."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.openai_chat.logprobs import lift_logprob, lower_logprob
from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.openai_responses.items import (
    LIFT_RESULT,
    lift_made,
    lift_result,
    lift_said,
    lower_result,
    lower_said,
)
from posttrain.llmm.dialects.openai_usage import Counts
from posttrain.llmm.dialects.wire import absent, done, each, note, own, put, rest
from posttrain.llmm.ir.chat import (
    ChatResponse,
    Choice,
    Failure,
    Logprob,
    Message,
    Part,
    Stop,
    Text,
    ToolCall,
    ToolResult,
)
from posttrain.llmm.ir.origin import Json

_RESPONSE = frozenset(
    ("id", "object", "created_at", "model", "output", "usage", "error", "status", "incomplete_details")
)
_ECHO: Final = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
                "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": None,
                "top_p": None}  # fmt: skip


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = rest(NAME, wire, _RESPONSE)
    parts = lift_output(wire.get("output"))
    calls = any(isinstance(part, ToolCall) for part in parts)
    stop = lift_status(wire.get("status"), wire.get("incomplete_details"), calls)
    said = {key: wire[key] for key in ("status", "incomplete_details") if key in wire}
    usual = {"status": lower_status(stop)[0], "incomplete_details": lower_status(stop)[1]}
    if said != usual:
        residual = note(NAME, residual, ended=said)
    residual = absent(NAME, residual, wire, ("object", "created_at", "error"))
    parts, logprobs, place = _take_logprobs(parts)
    usage, error = wire.get("usage"), wire.get("error")
    choice = Choice(
        message=Message(role="assistant", parts=parts), stop=stop, logprobs=logprobs,
        residual=None if place is None else note(NAME, None, logprobs=place),
    )  # fmt: skip
    return ChatResponse(
        choices=(choice,),
        id=wire.get("id"),
        model=wire.get("model"),
        created=wire.get("created_at"),
        usage=None if usage is None else lift_usage(usage),
        error=None if error is None else lift_error(error),
        residual=residual or {NAME: {}},
    )


def lift_output(items: Any) -> tuple[Part, ...]:
    """The parts of an answer's items."""
    return tuple(chain.from_iterable(each(items, "output", _lift_output_item)))


def _lift_output_item(item: Json) -> tuple[Part, ...]:
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") == "assistant":
        return lift_said(item)
    return (lift_result(item, kind) if kind in LIFT_RESULT else lift_made(item, str(kind)),)


def _take_logprobs(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[Logprob, ...] | None, int | None]:
    """Those of the one text that has them: an answer has one sample."""
    found = [i for i, part in enumerate(parts) if isinstance(part, Text) and own(NAME, part.residual).get("logprobs")]
    if len(found) != 1:
        return parts, None, None
    place = found[0]
    mine = own(NAME, parts[place].residual)
    logprobs = tuple(map(lift_logprob, mine.pop("logprobs")))
    part = msgspec.structs.replace(parts[place], residual={NAME: mine} if mine else None)
    return (*parts[:place], part, *parts[place + 1 :]), logprobs, place


def lift_status(status: Any, details: Any, calls: bool) -> Stop | None:
    """Why an answer ended, from its status."""
    if status in ("in_progress", "queued"):
        return None
    if status in (None, "completed"):
        return "tool_calls" if calls else "end"
    if status == "incomplete":
        reason = details.get("reason") if isinstance(details, dict) else None
        return {"max_output_tokens": "length", "content_filter": "filter"}.get(reason, "other")  # type: ignore
    return "error" if status == "failed" else "other"


def lower_status(stop: Stop | None) -> tuple[str, Json | None]:
    """Status and details of an answer that ended so."""
    if stop == "length":
        return "incomplete", {"reason": "max_output_tokens"}
    if stop == "filter":
        return "incomplete", {"reason": "content_filter"}
    if stop is None:
        return "in_progress", None
    return "failed" if stop == "error" else "completed", None


def lower_response(response: ChatResponse) -> Json:
    """An answer of several samples gives its first."""
    mine = response.residual is not None and NAME in response.residual
    out = own(NAME, response.residual) if mine else dict(_ECHO)
    choice = response.choices[0] if response.choices else Choice(message=Message(role="assistant"))
    out["object"] = "response"
    out["output"] = lower_output(response, choice)
    said: Any = out.get("~ended")
    calls = any(isinstance(part, ToolCall) for part in choice.message.parts)
    if said is not None and lift_status(said.get("status"), said.get("incomplete_details"), calls) == choice.stop:
        out.update(said)
    else:
        out["status"], out["incomplete_details"] = lower_status(choice.stop)
    put(out, id=response.id, model=response.model)
    out["created_at"] = response.created if response.created is not None or mine else 0
    if out["created_at"] is None and (response.residual or {}).get(NAME, {}).get("created_at", 0) == 0:
        del out["created_at"]
    out["error"] = None if response.error is None else lower_error(response.error)
    if response.usage is not None:
        out["usage"] = lower_usage(response.usage)
    return done(out)


def lower_output(response: ChatResponse, choice: Choice) -> list[Json]:
    parts = choice.message.parts
    if choice.logprobs is not None:
        place = own(NAME, choice.residual).get("~logprobs")
        if place is None:
            place = next((i for i, part in enumerate(parts) if isinstance(part, Text)), None)
        if place is not None and place < len(parts):
            more = {NAME: {**own(NAME, parts[place].residual), "logprobs": list(map(lower_logprob, choice.logprobs))}}
            marked = msgspec.structs.replace(parts[place], residual=more)
            parts = (*parts[:place], marked, *parts[place + 1 :])
    items: list[Json] = []
    start = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolResult):
            items.extend(lower_said(parts[start:index], response.id or "0", first=start))
            items.append(lower_result(part))
            start = index + 1
    return items + lower_said(parts[start:], response.id or "0", first=start)


_COUNTS: Final = Counts(NAME, "input_tokens", "output_tokens", whole=True)
lift_usage, lower_usage = _COUNTS.lift, _COUNTS.lower


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    residual = absent(NAME, rest(NAME, wire, {"code", "message"}), wire, ("message",))
    return Failure(message=str(wire.get("message", "")), code=wire.get("code"), residual=residual)


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, code=error.code or error.type)
    return done(out)
