"""Requests: the fields beside the contents."""

from __future__ import annotations

from typing import Final

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.google_genai.contents import lift_content, lower_messages
from posttrain.llmm.dialects.google_genai.parts import lift_parts, lower_parts
from posttrain.llmm.dialects.google_genai.tools import (
    lift_choice,
    lift_format,
    lift_thinking,
    lift_tools,
    lower_choice,
    lower_format,
    lower_thinking,
    lower_tools,
)
from posttrain.llmm.dialects.wire import DialectError, absent, as_list, as_object, done, kept, own, put, rest
from posttrain.llmm.ir.chat import ChatRequest, Message, Sampling
from posttrain.llmm.ir.origin import Json

_SNAKE = ("system_instruction", "generation_config", "tool_config", "safety_settings", "cached_content")
_SAMPLING: Final = {
    "maxOutputTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "topK": "top_k",
    "candidateCount": "n", "stopSequences": "stop", "seed": "seed", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty", "responseLogprobs": "logprobs", "logprobs": "top_logprobs",
}  # fmt: skip
_CONFIG = frozenset((*_SAMPLING, "responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig"))
_REQUEST = frozenset(("model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"))


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect. `model` may be given beside the vendor's own
    fields: on the wire it is in the path."""
    for key in _SNAKE:
        if key in wire:
            raise DialectError("is written in camel case here", field=key, remedy=f"write {_camel(key)}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    messages: list[Message] = []
    if (system := get("systemInstruction")) is not None:
        lifted = lift_parts(as_object(system, "systemInstruction").get("parts"), "systemInstruction.parts")
        left = absent(NAME, rest(NAME, system, {"parts"}), system, ("parts",))
        messages.append(Message(role="system", parts=lifted, residual=left))
    if (contents := get("contents")) is None:
        residual = absent(NAME, residual, wire, ("contents",))
    else:
        for index, content in enumerate(as_list(contents, "contents")):
            lift_content(content, index, messages)
    config, form, thinking, sampling = get("generationConfig"), None, None, Sampling()
    if config is not None:
        left = {key: value for key, value in config.items() if value is None or key not in _CONFIG}
        form = lift_format(config, left)
        thinking = lift_thinking(config.get("thinkingConfig"))
        given = {field: config[key] for key, field in _SAMPLING.items() if key in config}
        if given.get("stop") is not None:
            given["stop"] = tuple(given["stop"])
        sampling = Sampling(**given)
        if left or not config:
            residual = kept(NAME, residual, "generationConfig", left)
    choice = get("toolConfig")
    if choice is not None:
        left = {k: v for k, v in choice.items() if v is None or k != "functionCallingConfig"}
        if left or not choice:
            residual = kept(NAME, residual, "toolConfig", left)
        choice = lift_choice(choice.get("functionCallingConfig"))
    tools = get("tools")
    return ChatRequest(
        messages=tuple(messages), model=get("model"), sampling=sampling, format=form, thinking=thinking,
        tools=None if tools is None else lift_tools(as_list(tools, "tools")), tool_choice=choice,
        residual=residual,
    )  # fmt: skip


def _camel(key: str) -> str:
    head, *more = key.split("_")
    return head + "".join(word.capitalize() for word in more)


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    messages = request.messages
    leading = 0
    while leading < len(messages) and messages[leading].role in ("system", "developer"):
        leading += 1
    if leading:
        system = own(NAME, messages[0].residual)
        parts = [wire for message in messages[:leading] for wire in lower_parts(message.parts)]
        if parts or "parts" not in system:
            system["parts"] = parts
        out["systemInstruction"] = done(system)
    out["contents"] = lower_messages(messages[leading:])
    config = dict(out.get("generationConfig") or {})
    for key, field in _SAMPLING.items():
        if (value := getattr(request.sampling, field)) is not None:
            config[key] = list(value) if field == "stop" else value
    if request.format is not None:
        lower_format(request.format, config)
    if request.thinking is not None:
        lower_thinking(request.thinking, config)
    if config:
        out["generationConfig"] = config
    if request.tools is not None:
        out["tools"] = lower_tools(request.tools)
    if request.tool_choice is not None and (choice := lower_choice(request.tool_choice)) is not None:
        out["toolConfig"] = {**(out.get("toolConfig") or {}), "functionCallingConfig": choice}
    put(out, model=request.model)
    return done(out)
