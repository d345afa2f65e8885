"""Messages of the IR as a chat template takes them, and a sampled answer as a message of the IR.

Invariants: results of tools follow their calls in the calls' order, whatever order they came in, because most
templates show no ids; a call of a tool that takes free text travels as one argument, `input`, and comes back so.
What a template has no place for (an image, a tool that a vendor runs, that a call failed) is refused or listed, never
dropped unseen.
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
_ELSEWHERE = "additional_tools"  # an item of Codex's that gives tools: they are the request's
FREE: JSON = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class Untold:
    """Where in the request, what, and why."""

    path: str
    value: str | bool
    reason: str


@dataclass(frozen=True)
class TemplateMessages:
    """`sources[i]` is the message of the request that `messages[i]` was made of; `untold` is what the request says and
    the model is not told."""

    messages: tuple[JSON, ...]
    sources: tuple[int, ...]
    tools: tuple[JSON, ...]
    untold: tuple[Untold, ...] = ()


def template_messages(
    request: ir.ChatRequest, *, developer: bool = False, name_media: bool = False
) -> TemplateMessages:
    """The request as a template takes it. `developer`: the template knows that role; else it is a system's.
    `name_media`: an image or the like is told as its name in brackets, where it would be refused otherwise.

    Raises UserError naming the message that a model of text cannot take.
    """
    made: list[tuple[JSON, int]] = []
    names: dict[str, str] = {}
    read = _Reader(name_media, [])
    for index, message in enumerate(request.messages):
        if message.parts and all(isinstance(p, ir.Opaque) and p.type == _ELSEWHERE for p in message.parts):
            continue
        if message.role == "tool":
            made += [(result, index) for result in _results(message, names, index, read)]
        elif message.role == "assistant":
            made.append((_assistant(message, names, index, read), index))
        else:
            role = "system" if message.role == "developer" and not developer else message.role
            made.append(({"role": role, "content": read.text(message.parts, index)}, index))
    ordered = _in_order_of_calls(made)
    offered = []
    for number, tool in enumerate(request.tools or ()):
        if tool.name and not tool.type:
            offered.append(tool)
        else:
            read.untold.append(Untold(f"tools.{number}", tool.type or tool.name or "", "only its vendor can run it"))
    return TemplateMessages(
        tuple(message for message, _ in ordered), tuple(source for _, source in ordered),
        tuple(_tool(tool) for tool in offered), tuple(read.untold),
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


@dataclass
class _Reader:
    """Parts as text. `untold` grows by what is not said of them."""

    name_media: bool
    untold: list[Untold]

    def text(self, parts: Sequence[ir.Part], index: int, between: str = "\n") -> str:
        texts = []
        for part in parts:
            if isinstance(part, ir.Text | ir.Refusal):
                texts.append(part.text)
            elif isinstance(part, ir.Media | ir.Opaque):
                shown = part.medium if isinstance(part, ir.Media) else part.type
                if not self.name_media:
                    raise UserError(f"holds a part that this model cannot take: {shown}", field=f"messages[{index}]")
                texts.append(f"[{shown}]")
                self.untold.append(Untold(f"messages.{index}", shown, "a model of text is told its name alone"))
            elif isinstance(part, ir.Reasoning) and part.text is None:
                self.untold.append(Untold(f"messages.{index}", "reasoning", "sealed by its vendor"))
        return between.join(texts)


def _assistant(message: ir.Message, names: dict[str, str], index: int, read: _Reader) -> JSON:
    made: JSON = {"role": "assistant", "content": read.text(message.parts, index, "")}
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


def _results(message: ir.Message, names: dict[str, str], index: int, read: _Reader) -> list[JSON]:
    made = []
    for part in message.parts:
        if isinstance(part, ir.ToolResult):
            value = msgspec.json.encode(part.value).decode() if part.value is not None else None
            content = value if value is not None else read.text(part.content, index)
            name = part.name or names.get(part.call or "") or ""
            made.append({"role": "tool", "tool_call_id": part.call, "name": name, "content": content})
            if part.error:
                read.untold.append(Untold(f"messages.{index}.error", True, "templates have no word for it"))
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
