"""Requests: the fields beside the messages."""

from __future__ import annotations

import msgspec

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.openai_chat.messages import lift_messages, lower_messages
from posttrain.llmm.dialects.openai_chat.tools import (
    lift_choice,
    lift_format,
    lift_tool,
    lower_choice,
    lower_format,
    lower_tool,
)
from posttrain.llmm.dialects.wire import DialectError, as_list, done, each, note, own, put, rest
from posttrain.llmm.ir.chat import ChatRequest, Sampling, Thinking
from posttrain.llmm.ir.origin import Json

_SAMPLING = frozenset(
    ("temperature", "top_p", "top_k", "seed", "n", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")
)
_REQUEST = frozenset(
    (*_SAMPLING, "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "stop",
     "response_format", "reasoning_effort", "stream", "user", "metadata")
)  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect."""
    if "messages" not in wire:
        raise DialectError("is missing", field="messages", remedy="give a list of {role, content}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    limit = get("max_completion_tokens")
    if limit is None and isinstance(get("max_tokens"), int):
        limit = get("max_tokens")
        residual = note(NAME, residual, max_tokens=limit)
        del residual[NAME]["max_tokens"]
    stop = get("stop")
    if isinstance(stop, str):
        stop, residual = [stop], note(NAME, residual, stop=stop)
    tools, effort = get("tools"), get("reasoning_effort")
    return ChatRequest(
        messages=lift_messages(as_list(wire["messages"], "messages")),
        model=get("model"),
        tools=None if tools is None else tuple(each(tools, "tools", lift_tool)),
        tool_choice=lift_choice(get("tool_choice"), get("parallel_tool_calls")),
        sampling=Sampling(
            max_tokens=limit,
            stop=None if stop is None else tuple(as_list(stop, "stop")),
            **{key: wire[key] for key in wire if key in _SAMPLING},
        ),
        format=lift_format(get("response_format")),
        thinking=None if effort is None else Thinking(effort=effort),
        stream=get("stream"),
        user=get("user"),
        metadata=get("metadata"),
        residual=residual,
    )


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    out["messages"] = lower_messages(request.messages)
    _lower_sampling(request.sampling, out)
    if request.tools is not None:
        out["tools"] = [wire for tool in request.tools if (wire := lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        lower_choice(request.tool_choice, out)
    if request.format is not None:
        out["response_format"] = lower_format(request.format)
    if request.thinking is not None:
        put(out, reasoning_effort=request.thinking.effort)
    put(out, model=request.model, stream=request.stream, user=request.user, metadata=request.metadata)
    return out if request.residual is None else done(out)


def _lower_sampling(sampling: Sampling, out: Json) -> None:
    said: Json = msgspec.to_builtins(sampling)  # what is set, alone
    if (limit := said.pop("max_tokens", None)) is not None:
        out["max_tokens" if out.get("~max_tokens") is not None else "max_completion_tokens"] = limit
    if (stop := said.pop("stop", None)) is not None:
        text = out.get("~stop")
        out["stop"] = text if stop == (text,) else list(stop)
    out.update(said)
