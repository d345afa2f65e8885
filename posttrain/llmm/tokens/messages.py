"""Messages of the IR as a chat template takes them, and a sampled answer as a message of the IR.

Invariants: results of tools follow their calls in the calls' order, whatever order they came in, because most
templates show no ids; a call of a tool that takes free text travels as one argument, `input`, and comes back so.
What a template has no place for (an image, a tool that a vendor runs) is refused or named, never dropped unseen.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.llmm.tokens.parsers import Call, Parsed, ReasoningDelta, TextDelta

JSON = dict[str, Any]
FREE: JSON = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class TemplateMessages:
    """`sources[i]` is the message of the request that `messages[i]` was made of."""

    messages: tuple[JSON, ...]
    sources: tuple[int, ...]
    tools: tuple[JSON, ...]
    not_offered: tuple[str, ...]  # tools that only their vendor can run


def template_messages(request: ir.ChatRequest, *, developer: bool = False) -> TemplateMessages:
    """The request as a template takes it. `developer`: the template knows that role; else it is a system's.

    Raises UserError naming the message that a model of text cannot take.
    """
    made: list[tuple[JSON, int]] = []
    names: dict[str, str] = {}
    for index, message in enumerate(request.messages):
        if message.role == "tool":
            made += [(result, index) for result in _results(message, names, index)]
        elif message.role == "assistant":
            made.append((_assistant(message, names, index), index))
        else:
            role = "system" if message.role == "developer" and not developer else message.role
            made.append(({"role": role, "content": _text(message.parts, index)}, index))
    ordered = _in_order_of_calls(made)
    offered = [tool for tool in request.tools or () if tool.name and not tool.type]
    hosted = [tool.type or tool.name or "" for tool in request.tools or () if tool.type or not tool.name]
    return TemplateMessages(
        tuple(message for message, _ in ordered), tuple(source for _, source in ordered),
        tuple(_tool(tool) for tool in offered), tuple(hosted),
    )  # fmt: skip


def answer(parsed: Parsed, request: ir.ChatRequest) -> ir.Message:
    """What the model said, in the order in which it said it. Calls without an id get one of nine letters and
    digits, the narrowest form that a template asks for."""
    free = {tool.name for tool in request.tools or () if tool.free}
    parts: list[ir.Part] = []
    for part in parsed.parts:
        if isinstance(part, ReasoningDelta):
            parts.append(ir.Reasoning(text=part.text))
        elif isinstance(part, TextDelta):
            parts.append(ir.Text(text=part.text))
        else:
            parts.append(tool_call(part, free=part.name in free))
    return ir.Message(role="assistant", parts=tuple(parts))


def tool_call(call: Call, *, free: bool) -> ir.ToolCall:
    arguments = call.arguments
    if free:
        given = msgspec.json.decode(arguments)
        free = isinstance(given, dict) and isinstance(given.get("input"), str)
        arguments = given["input"] if free else arguments
    return ir.ToolCall(name=call.name, arguments=arguments, id=call.id or _new_id(), free=free)


def schemas(request: ir.ChatRequest) -> dict[str, JSON]:
    """Name -> JSON schema of the parameters of each tool that is offered."""
    return {tool.name: FREE if tool.free else tool.parameters or {} for tool in request.tools or () if tool.name}


def _new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(9))


def _tool(tool: ir.Tool) -> JSON:
    parameters = FREE if tool.free else tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
    return {"type": "function", "function": function}


def _text(parts: Sequence[ir.Part], index: int, between: str = "\n") -> str:
    texts = []
    for part in parts:
        if isinstance(part, ir.Text | ir.Refusal):
            texts.append(part.text)
        elif isinstance(part, ir.Media | ir.Opaque):
            shown = part.medium if isinstance(part, ir.Media) else part.type
            raise UserError(f"holds a part that this model cannot take: {shown}", field=f"messages[{index}]")
    return between.join(texts)


def _assistant(message: ir.Message, names: dict[str, str], index: int) -> JSON:
    made: JSON = {"role": "assistant", "content": _text(message.parts, index, "")}
    if thought := "".join(part.text or "" for part in message.parts if isinstance(part, ir.Reasoning)):
        made |= {"reasoning_content": thought, "thinking": thought}  # Qwen's and GLM's word, gpt-oss's word
    calls = [part for part in message.parts if isinstance(part, ir.ToolCall)]
    if calls:
        made["tool_calls"] = [_call(call, number, names) for number, call in enumerate(calls)]
    return made


def _call(call: ir.ToolCall, number: int, names: dict[str, str]) -> JSON:
    call_id = call.id or f"call{number:05d}"
    names[call_id] = call.name
    arguments = {"input": ir.arguments_text(call)} if call.free else call.arguments
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _results(message: ir.Message, names: dict[str, str], index: int) -> list[JSON]:
    made = []
    for part in message.parts:
        if isinstance(part, ir.ToolResult):
            value = msgspec.json.encode(part.value).decode() if part.value is not None else None
            content = value if value is not None else _text(part.content, index)
            name = part.name or names.get(part.call or "") or ""
            made.append({"role": "tool", "tool_call_id": part.call, "name": name, "content": content})
    return made


def _in_order_of_calls(made: list[tuple[JSON, int]]) -> list[tuple[JSON, int]]:
    """Each run of results in the order of the calls of the assistant's message before it."""
    ordered: list[tuple[JSON, int]] = []
    run: list[tuple[JSON, int]] = []
    order: dict[str, int] = {}
    for item in [*made, None]:
        if item is not None and item[0]["role"] == "tool":
            run.append(item)
            continue
        ordered += sorted(run, key=lambda result: order.get(result[0]["tool_call_id"] or "", len(order)))
        run = []
        if item is not None:
            ordered.append(item)
            order = {call["id"]: place for place, call in enumerate(item[0].get("tool_calls", ()))}
    return ordered
