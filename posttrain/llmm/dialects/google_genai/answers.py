"""Answers: samples with their ends and log-probabilities, usage, errors."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.google_genai.contents import lift_message, lower_message
from posttrain.llmm.dialects.google_genai.parts import lower_parts
from posttrain.llmm.dialects.wire import absent, as_list, as_object, done, note, own, put, recoded, rest
from posttrain.llmm.ir.chat import ChatResponse, Choice, Failure, Logprob, Message, Part, Stop, ToolCall, Usage
from posttrain.llmm.ir.origin import Json

STOPS: dict[str, Stop] = {
    "STOP": "end", "MAX_TOKENS": "length", "SAFETY": "filter", "RECITATION": "filter", "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter", "SPII": "filter", "IMAGE_SAFETY": "filter", "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter", "MODEL_ARMOR": "filter",
}  # fmt: skip
STOP_WORDS: dict[Stop, str] = {"end": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "refusal": "SAFETY",
                               "error": "OTHER", "other": "OTHER"}  # fmt: skip
_RESPONSE = frozenset(("candidates", "usageMetadata", "modelVersion", "responseId", "error"))
_CANDIDATE = frozenset(("content", "finishReason", "index", "logprobsResult"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = absent(NAME, rest(NAME, wire, _RESPONSE), wire, ("candidates",))
    candidates, usage, error = wire.get("candidates"), wire.get("usageMetadata"), wire.get("error")
    listed = [] if candidates is None else as_list(candidates, "candidates")
    choices = tuple(_lift_candidate(as_object(each_, f"candidates.{i}"), i) for i, each_ in enumerate(listed))
    return ChatResponse(
        choices=choices, id=wire.get("responseId"), model=wire.get("modelVersion"),
        usage=None if usage is None else lift_usage(usage), error=None if error is None else lift_error(error),
        residual=residual,
    )  # fmt: skip


def _lift_candidate(wire: Json, place: int) -> Choice:
    residual = absent(NAME, rest(NAME, wire, _CANDIDATE), wire, ("index", "content"))
    content, message = wire.get("content"), Message(role="assistant")
    if content is not None:
        _, parts, left = lift_message(as_object(content, "candidates.content"), "candidates.content", "assistant")
        message = Message(role="assistant", parts=parts, residual=left)
    reason = wire.get("finishReason")
    stop = lift_stop(reason, message.parts)
    if reason is not None and lower_stop(stop, None) != reason:
        residual = note(NAME, residual, finishReason=reason)
    logprobs, left = _lift_logprobs(wire.get("logprobsResult"))
    if left is not None:
        residual = note(NAME, residual, logprobs=left)
    return Choice(message=message, index=wire.get("index") or place, stop=stop, logprobs=logprobs, residual=residual)


def lift_stop(reason: Any, parts: tuple[Part, ...]) -> Stop | None:
    """This vendor says STOP after calls as well."""
    if reason == "STOP" and any(isinstance(part, ToolCall) for part in parts):
        return "tool_calls"
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "STOP")


def _lift_logprobs(wire: Any) -> tuple[tuple[Logprob, ...] | None, Json | None]:
    if not isinstance(wire, dict):
        return None, None
    chosen, top = wire.get("chosenCandidates"), wire.get("topCandidates")
    if chosen is None:
        return None, wire
    left = {k: v for k, v in wire.items() if v is None or k not in ("chosenCandidates", "topCandidates")}
    others: list[Any] = [None] * len(chosen)
    listed: list[Json] = top or []
    plain = all(set(each_) == {"candidates"} and each_["candidates"] is not None for each_ in listed)
    if top is not None and plain and len(listed) == len(chosen):
        others = [tuple(map(_lift_logprob, each_["candidates"])) for each_ in listed]
    elif top is not None:
        left["topCandidates"] = top
    found = tuple(_lift_logprob(one, more) for one, more in zip(chosen, others, strict=True))
    if top == []:
        left["topCandidates"] = []
    return found, left


def _lift_logprob(wire: Json, top: tuple[Logprob, ...] | None = None) -> Logprob:
    residual = absent(NAME, rest(NAME, wire, {"token", "tokenId", "logProbability"}), wire, ("token",))
    return Logprob(
        token=wire.get("token") or "", logprob=wire.get("logProbability"), id=wire.get("tokenId"), top=top,
        residual=residual,
    )  # fmt: skip


def _lower_logprobs(logprobs: tuple[Logprob, ...] | None, left: Json | None) -> Json | None:
    if logprobs is None:
        return left
    out = dict(left or {})
    out["chosenCandidates"] = [_lower_logprob(one) for one in logprobs]
    if logprobs and all(one.top is not None for one in logprobs):
        out["topCandidates"] = [{"candidates": [_lower_logprob(each_) for each_ in one.top or ()]} for one in logprobs]
    return out


def _lower_logprob(one: Logprob) -> Json:
    out = own(NAME, one.residual)
    if "token" not in out:
        out["token"] = one.token
    put(out, logProbability=one.logprob, tokenId=one.id)
    return done(out)


def lower_response(response: ChatResponse) -> Json:
    out = own(NAME, response.residual)
    if response.error is not None:
        out["error"] = lower_error(response.error)
    if response.choices or ("candidates" not in out and response.error is None):
        out["candidates"] = [_lower_candidate(choice) for choice in response.choices]
    put(out, modelVersion=response.model, responseId=response.id)
    if response.usage is not None:
        out["usageMetadata"] = lower_usage(response.usage)
    return done(out)


def _lower_candidate(choice: Choice) -> Json:
    out = own(NAME, choice.residual)
    message = choice.message
    if message.parts or "content" not in out:
        out["content"] = lower_message(message, lower_parts(message.parts))
        if message.parts and "content" in out.get("~absent", ()):
            out["~absent"] = [key for key in out["~absent"] if key != "content"]
    if out.get("index", 0) is not None:
        out["index"] = choice.index
    said = out.get("~finishReason")
    reason = (
        said if said is not None and lift_stop(said, message.parts) == choice.stop else lower_stop(choice.stop, None)
    )
    put(out, finishReason=reason, logprobsResult=_lower_logprobs(choice.logprobs, out.get("~logprobs")))
    return done(out)


_USAGE = frozenset(
    ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount", "cachedContentTokenCount")
)


def lift_usage(wire: Json) -> Usage:
    said, thought = wire.get("candidatesTokenCount"), wire.get("thoughtsTokenCount")
    return Usage(
        input=wire.get("promptTokenCount"), output=None if said is None else said + (thought or 0),
        total=wire.get("totalTokenCount"), cached=wire.get("cachedContentTokenCount"), reasoning=thought,
        residual=rest(NAME, wire, _USAGE) or {NAME: {}},
    )  # fmt: skip


def lower_usage(usage: Usage) -> Json:
    out = own(NAME, usage.residual)
    mine = usage.residual is not None and NAME in usage.residual
    total = usage.total
    if total is None and not mine and usage.input is not None and usage.output is not None:
        total = usage.input + usage.output
    put(
        out, promptTokenCount=usage.input, thoughtsTokenCount=usage.reasoning, totalTokenCount=total,
        candidatesTokenCount=None if usage.output is None else max(0, usage.output - (usage.reasoning or 0)),
        cachedContentTokenCount=usage.cached,
    )  # fmt: skip
    return out


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    code, residual = wire.get("code"), rest(NAME, wire, {"message", "status", "code"})
    return Failure(
        message=str(wire.get("message", "")), type=wire.get("status"), code=None if code is None else str(code),
        residual=note(NAME, absent(NAME, residual, wire, ("message",)), code=code),
    )  # fmt: skip


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    code = out.get("~code")
    put(out, status=error.type, code=code if code is not None and str(code) == error.code else error.code)
    return done(out)
