"""Messages: tool messages that follow each other are joined, an assistant's parts have one order."""

from __future__ import annotations

from typing import Any

import msgspec

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.openai_chat.content import (
    bare,
    cite,
    lift_content,
    lower_annotation,
    lower_content,
    lower_part,
)
from posttrain.llmm.dialects.wire import (
    DialectError,
    absent,
    as_list,
    as_object,
    as_text,
    done,
    each,
    kept,
    note,
    own,
    put,
    rest,
)
from posttrain.llmm.ir.chat import Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, arguments_text
from posttrain.llmm.ir.origin import Json, Residual

_SILENT: Residual = {NAME: {"content": None}}  # calls without words
_ROLES = frozenset(("system", "developer", "user"))
_encode = msgspec.json.Encoder().encode
_MESSAGE = frozenset(("role", "content", "name"))
_ASSISTANT = frozenset(("role", "content", "name", "tool_calls", "refusal", "reasoning_content", "reasoning",
                        "annotations"))  # fmt: skip
_TOOL_MESSAGE = frozenset(("role", "content", "tool_call_id"))


def lift_messages(wires: list[Any]) -> tuple[Message, ...]:
    messages: list[Message] = []
    joins = False
    try:
        for wire in wires:
            role = wire.get("role") if type(wire) is dict else as_object(wire, "")
            if role == "tool":
                call, content = wire.get("tool_call_id"), wire.get("content")
                if len(wire) == 3 and type(content) is str and call is not None:
                    result = ToolResult(call=call, content=(Text(text=content),))
                else:
                    result = _lift_result(wire)
                messages.append(Message(role="tool", parts=(result,), joined=joins))
                joins = True
            elif role == "assistant":
                messages.append(lift_assistant(wire))
                joins = False
            else:
                messages.append(_lift_message(wire, role, joins))
                joins = role == "function"
    except DialectError as problem:
        raise problem.within(f"messages.{len(messages)}") from None
    return tuple(messages)


def _lift_message(wire: Json, role: Any, joins: bool) -> Message:
    if role not in _ROLES:
        if role != "function":
            raise DialectError("is no role", field="role", value=role)
        return Message(role="tool", parts=(Opaque(type="function", residual={NAME: wire}),), joined=joins)
    parts = lift_content(wire.get("content"))
    if len(wire) == 2 and parts:
        return Message(role=role, parts=parts)
    return Message(role=role, parts=parts, name=wire.get("name"), residual=rest(NAME, wire, _MESSAGE))


def _lift_result(wire: Json) -> ToolResult:
    parts: Any = lift_content(wire.get("content"))
    return ToolResult(call=wire.get("tool_call_id"), content=parts, residual=rest(NAME, wire, _TOOL_MESSAGE))


def lift_assistant(wire: Json) -> Message:
    """An assistant's message, of a request or an answer."""
    get = wire.get
    content, calls = get("content"), get("tool_calls")
    if type(content) is str and "role" in wire and len(wire) == (3 if calls else 2):
        text = Text(text=content)
        return Message(role="assistant", parts=(text, *_lift_calls(calls)) if calls else (text,))
    silent = content is None and "content" in wire
    if calls and len(wire) == ("role" in wire) + silent + 1:
        return Message(role="assistant", parts=tuple(_lift_calls(calls)), residual=_SILENT if silent else None)
    return _lift_unusual(wire, content, calls)


def _lift_unusual(wire: Json, content: Any, calls: Any) -> Message:
    get, residual = wire.get, rest(NAME, wire, _ASSISTANT)
    parts: list[Part] = []
    for key in ("reasoning_content", "reasoning"):
        thought = get(key)
        if thought is not None and parts:
            residual = kept(NAME, residual, key, thought)
        elif thought is not None:
            form = None if key == "reasoning_content" else {NAME: {"~key": key}}
            parts.append(Reasoning(text=as_text(thought, key), residual=form))
    annotations = get("annotations")
    if content is not None:
        parts.extend(lift_content(content))
        residual = residual if content != [] else kept(NAME, residual, "content", [])
    if annotations is not None:
        cite(parts, as_list(annotations, "annotations"))
        if not any(isinstance(part, Text) for part in parts):
            residual = kept(NAME, residual, "annotations", annotations)
    if (refusal := get("refusal")) is not None:
        parts.append(Refusal(text=as_text(refusal, "refusal")))
    if calls is not None:
        parts.extend(_lift_calls(calls))
        if not calls:
            residual = kept(NAME, residual, "tool_calls", [])
    return Message(role="assistant", parts=tuple(parts), name=get("name"), residual=residual)


def _lift_calls(wires: Any) -> list[ToolCall]:
    found: list[ToolCall] = []
    try:
        for wire in wires:
            inner, id_ = wire["function"], wire["id"]
            name, text = inner["name"], inner["arguments"]
            usual = len(wire) == 3 and len(inner) == 2 and wire["type"] == "function" and id_ is not None
            if not usual or type(name) is not str or type(text) is not str:
                break
            found.append(ToolCall(name=name, arguments=text, id=id_))
        else:
            return found
    except (LookupError, TypeError):
        pass
    return each(wires, "tool_calls", _lift_call)


def _lift_call(wire: Json) -> ToolCall:
    kind = wire.get("type", "function")
    key, text = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = as_object(wire.get(key), key)
    residual = rest(NAME, wire, {"id", "type", key})
    if len(inner) > 2 and (beside := rest(NAME, inner, {"name", text})):
        residual = note(NAME, residual, inner=beside[NAME])
    if "type" not in wire:
        residual = absent(NAME, residual, wire, ("type",))
    return ToolCall(
        name=as_text(inner.get("name"), f"{key}.name"),
        arguments=as_text(inner.get(text), f"{key}.{text}"),
        id=wire.get("id"),
        free=kind == "custom",
        residual=residual,
    )


def _lower_call(call: ToolCall) -> Json:
    out = own(NAME, call.residual)
    key, text = ("custom", "input") if call.free else ("function", "arguments")
    out["type"] = key
    out[key] = {"name": call.name, text: arguments_text(call), **out.get("~inner", {})}
    put(out, id=call.id)
    return done(out)


def lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        role, parts = message.role, message.parts
        if role == "assistant":
            found.append(lower_assistant(message))
        elif role == "tool":
            for part in parts:
                if type(part) is ToolResult:
                    found.append(_lower_result(part))
                elif (wire := lower_part(part)) is not None:
                    found.append(wire)
        elif message.residual is None and message.name is None:
            found.append({"role": role, "content": lower_content(parts)})
        else:
            out = own(NAME, message.residual)
            out["role"] = role
            if parts or "content" not in out:
                out["content"] = lower_content(parts)
            put(out, name=message.name)
            found.append(done(out))
    return found


def _lower_result(result: ToolResult) -> Json:
    content, residual, call = result.content, result.residual, result.call
    if residual is None and result.value is None and call is not None and len(content) == 1:
        text = content[0]
        if type(text) is Text and (text.residual is None or NAME not in text.residual):
            return {"role": "tool", "tool_call_id": call, "content": text.text}
    out = own(NAME, residual)
    out["role"] = "tool"
    put(out, tool_call_id=call)
    if result.value is not None and not content:
        out["content"] = msgspec.json.encode(result.value).decode()
    elif content or "content" not in out:
        out["content"] = lower_content(content) if content else []
    return done(out)


def lower_assistant(message: Message, *, flat: bool = False) -> Json:
    """An assistant's message. Reasoning is written where vLLM reads it; `flat`: texts are joined to one, as an answer
    must have it."""
    residual = message.residual
    out: Json = {} if residual is None else own(NAME, residual)
    out["role"] = "assistant"
    content: list[Part] = []
    calls: list[Json] = []
    part: Any
    for part in message.parts:
        kind = type(part)
        if kind is ToolCall:
            given, id_, left = part.arguments, part.id, part.residual
            if (left is None or NAME not in left) and id_ is not None and not part.free:
                given = given if type(given) is str else _encode(given).decode()
                calls.append({"id": id_, "type": "function", "function": {"name": part.name, "arguments": given}})
            else:
                calls.append(_lower_call(part))
        elif kind is Text:
            content.append(part)
            if part.citations is not None:
                out.setdefault("annotations", []).extend(map(lower_annotation, part.citations))
        elif kind is Reasoning:
            _lower_thought(part, out)
        elif kind is Refusal and bare(part):
            out["refusal"] = part.text
        elif kind is not ToolResult:
            content.append(part)
    if content:
        flat = flat and all(type(part) is Text and bare(part) for part in content)
        out["content"] = "".join(part.text for part in content) if flat else lower_content(content)  # type: ignore
    if calls:
        out["tool_calls"] = calls
    if message.name is not None:
        out["name"] = message.name
    return out if residual is None else done(out)


def _lower_thought(part: Reasoning, out: Json) -> None:
    key = "reasoning_content"
    if part.residual is not None:
        key = part.residual.get(NAME, {}).get("~key", key)
    if part.text is not None:
        before = out.get(key) if isinstance(out.get(key), str) else ""
        out[key] = f"{before}{part.text}"
