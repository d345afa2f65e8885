"""Requests: the fields beside the messages."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.anthropic_messages.blocks import lift_content, lower_content
from posttrain.llmm.dialects.anthropic_messages.messages import lift_messages, lower_messages
from posttrain.llmm.dialects.anthropic_messages.tools import (
    lift_choice,
    lift_format,
    lift_thinking,
    lift_tool,
    lower_choice,
    lower_output,
    lower_tool,
)
from posttrain.llmm.dialects.wire import DialectError, as_list, done, each, kept, note, own, put, rest
from posttrain.llmm.ir.chat import ChatRequest, Message, Sampling
from posttrain.llmm.ir.origin import Json, Residual

MAX_TOKENS = 4096  # this vendor must be told a limit; the one given where no limit was asked for
_REQUEST = frozenset(
    ("model", "messages", "max_tokens", "system", "tools", "tool_choice", "temperature", "top_p", "top_k",
     "stop_sequences", "stream", "thinking", "output_config", "metadata")
)  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect."""
    if "messages" not in wire:
        raise DialectError("is missing", field="messages", remedy="give a list of {role, content}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    if "max_tokens" not in wire:  # as a request to count tokens does
        residual = note(NAME, residual, absent=["max_tokens"])
    messages: list[Message] = []
    if (system := get("system")) is not None:
        messages.append(Message(role="system", parts=tuple(lift_content(system, "system"))))
    lift_messages(as_list(wire["messages"], "messages"), messages)
    config = get("output_config")
    user, form, effort = None, None, None
    if (metadata := get("metadata")) is not None:
        user = metadata.get("user_id")
        left = {key: value for key, value in metadata.items() if key != "user_id" or value is None}
        if left or user is None:
            residual = kept(NAME, residual, "metadata", left)
    if config is not None:
        effort, form = config.get("effort"), lift_format(config.get("format"))
        left = {k: v for k, v in config.items() if v is None or k not in ("effort", "format")}
        if left or not config:
            residual = kept(NAME, residual, "output_config", left)
    tools, stop = get("tools"), get("stop_sequences")
    return ChatRequest(
        messages=tuple(messages),
        model=get("model"),
        tools=None if tools is None else tuple(each(tools, "tools", lift_tool)),
        tool_choice=lift_choice(get("tool_choice")),
        sampling=Sampling(
            max_tokens=get("max_tokens"),
            temperature=get("temperature"),
            top_p=get("top_p"),
            top_k=get("top_k"),
            stop=None if stop is None else tuple(as_list(stop, "stop_sequences")),
        ),
        format=form,
        thinking=lift_thinking(get("thinking"), effort),
        stream=get("stream"),
        user=user,
        residual=residual,
    )


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    leading = 0
    for message in request.messages:
        if message.role not in ("system", "developer") or _note(message.residual, "~listed"):
            break
        leading += 1
    if leading:
        out["system"] = lower_content(tuple(part for message in request.messages[:leading] for part in message.parts))
    out["messages"] = lower_messages(request.messages[leading:])
    sampling = request.sampling
    put(out, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)
    if sampling.max_tokens is not None or "max_tokens" not in out:
        out["max_tokens"] = MAX_TOKENS if sampling.max_tokens is None else sampling.max_tokens
    if sampling.stop is not None:
        out["stop_sequences"] = list(sampling.stop)
    if request.tools is not None:
        out["tools"] = [wire for tool in request.tools if (wire := lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        out["tool_choice"] = lower_choice(request.tool_choice)
    if request.user is not None:
        out["metadata"] = {**out.get("metadata", {}), "user_id": request.user}
    lower_output(request, out)
    put(out, model=request.model, stream=request.stream)
    return out if request.residual is None else done(out)


def _note(residual: Residual | None, key: str) -> Any:
    return residual.get(NAME, {}).get(key) if residual is not None else None
