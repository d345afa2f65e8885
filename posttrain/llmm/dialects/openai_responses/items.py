"""Items of a conversation: messages, calls, reasoning, and what tools gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.openai_responses.content import lift_content, lower_content, lower_part
from posttrain.llmm.dialects.wire import DialectError, absent, done, kept, note, own, put, rest
from posttrain.llmm.ir.chat import (
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    arguments_text,
)
from posttrain.llmm.ir.origin import Json, Residual

_MINE: Residual = {NAME: {}}  # it came in this dialect, with nothing else to it
_BARE: Residual = {NAME: {"~item": {}, "~string": True}}  # an assistant's text with nothing beside it
_MESSAGE = frozenset(("role", "content"))
_FROM_TOOLS = frozenset(("mcp_approval_response",))
_FROM_CLIENT = frozenset(("item_reference", "additional_tools", "configuration_update", "compaction_trigger"))


def gathered(items: Iterable[tuple[Role, tuple[Part, ...], Residual | None]], into: list[Message]) -> None:
    """Messages of lifted items: what the assistant made, up to where someone else speaks, is one."""
    said: list[Part] = []
    answers = False  # whether the message before is a tool's
    for role, parts, residual in items:
        if role == "assistant":
            said += parts
            continue
        if said:
            into.append(Message(role="assistant", parts=tuple(said)))
            said, answers = [], False
        if role == "system" and not into:
            residual = note(NAME, residual, first=True)
        into.append(Message(role=role, parts=parts, joined=answers and role == "tool", residual=residual))
        answers = role == "tool"
    if said:
        into.append(Message(role="assistant", parts=tuple(said)))


def lift_item(item: Json) -> tuple[Role, tuple[Part, ...], Residual | None]:
    kind = item.get("type", "message" if "role" in item else "item_reference")
    if kind == "function_call":
        return "assistant", (lift_made(item, kind),), None
    if kind in LIFT_RESULT:
        return "tool", (lift_result(item, kind),), None
    if kind == "message":
        role = item.get("role")
        if role == "assistant":
            return "assistant", lift_said(item), None
        if role not in ("user", "system", "developer"):
            raise DialectError("is no role", field="role", value=role)
        residual = rest(NAME, item, _MESSAGE) if len(item) > 2 else None
        return role, lift_content(item.get("content"), "content"), residual
    part = lift_made(item, kind)
    if kind in _FROM_CLIENT:
        return "user", (part,), None
    return "tool" if kind.endswith("_output") or kind in _FROM_TOOLS else "assistant", (part,), None


def lift_made(item: Json, kind: str) -> Part:
    """A part that is an item of its own: a call, reasoning, or what the IR has no word for."""
    if kind == "function_call" or kind == "custom_tool_call":
        get, text = item.get, "arguments" if kind == "function_call" else "input"
        name, given, call = get("name"), get(text), get("call_id")
        if type(given) is str and type(name) is str:
            usual = len(item) == 4 and call is not None
            left = _MINE if usual else rest(NAME, item, {"type", "name", text, "call_id"}) or _MINE
            return ToolCall(name=name, arguments=given, id=call, free=text == "input", residual=left)
    elif kind == "reasoning":
        return _lift_reasoning(item)
    return Opaque(type=kind, residual={NAME: item})


def lift_said(item: Json) -> tuple[Part, ...]:
    content = item.get("content")
    if type(content) is str and len(item) == 2:
        return (Text(text=content, residual=_BARE),)
    left = {k: v for k, v in item.items() if k not in ("role", "content")}
    if type(content) is str:
        return (Text(text=content, residual={NAME: {"~item": left, "~string": True}}),)
    parts = list(lift_content(content, "content"))
    if not parts or not all(isinstance(part, Text | Refusal) for part in parts):
        return (Opaque(type="message", residual={NAME: item}),)
    parts[0] = msgspec.structs.replace(parts[0], residual=note(NAME, parts[0].residual, item=left))
    return tuple(parts)


def _lift_reasoning(item: Json) -> Part:
    summary, content = item.get("summary"), item.get("content")
    residual = rest(NAME, item, {"type", "summary", "content", "encrypted_content"})
    for texts, kind in ((summary, "summary_text"), (content, "reasoning_text")):
        if texts is not None and not all(
            isinstance(each_, dict) and set(each_) == {"type", "text"} and each_["type"] == kind for each_ in texts
        ):
            return Opaque(type="reasoning", residual={NAME: item})
    said = None if content is None else [each_["text"] for each_ in content]
    if said is not None and len(said) != 1:
        residual = note(NAME, residual, lengths=[len(text) for text in said])
    residual = absent(NAME, residual, item, ("summary",))
    return Reasoning(
        text=None if said is None else "".join(said),
        summary=tuple(each_["text"] for each_ in summary) if summary else None,
        encrypted=item.get("encrypted_content"),
        residual=residual,
    )


LIFT_RESULT: Final = {"function_call_output": False, "custom_tool_call_output": True}


def lift_result(item: Json, kind: str) -> Part:
    call, output = item.get("call_id"), item.get("output")
    if type(output) is str and len(item) == 3 and call is not None:
        return ToolResult(call=call, free=LIFT_RESULT[kind], content=(Text(text=output),))
    residual = rest(NAME, item, {"type", "call_id", "output"})
    if output == []:
        residual = kept(NAME, residual, "output", [])
    return ToolResult(
        call=call, free=LIFT_RESULT[kind], residual=residual,
        content=() if output is None else lift_content(output, "output"),  # type: ignore[arg-type]
    )  # fmt: skip


def lower_message(message: Message, into: list[Json]) -> None:
    role = message.role
    if role == "assistant":
        into.extend(lower_said(message.parts, None))
        return
    if role == "tool" or (len(message.parts) == 1 and isinstance(message.parts[0], Opaque)):
        for part in message.parts:
            if isinstance(part, ToolResult):
                into.append(lower_result(part))
            elif isinstance(part, Opaque) and part.residual is not None and NAME in part.residual:
                if part.type.startswith("input_"):
                    break
                into.append(part.residual[NAME])
        else:
            return
    out = own(NAME, message.residual)
    out["role"] = role
    if message.parts or "content" not in out:
        out["content"] = lower_content(message.parts)
    into.append(done(out))


def lower_said(parts: tuple[Part, ...], answer: str | None, *, first: int = 0) -> list[Json]:
    """The items of an assistant's message. `answer` is the id of the answer that they belong to, from which items
    without an id get theirs; None in a request, where none is needed. `first` is the number of the first part."""
    items: list[Json] = []
    message: Json | None = None
    for index, part in enumerate(parts, first):
        notes = own(NAME, part.residual)
        if isinstance(part, Text | Refusal):
            head = notes.get("~item")
            fresh = head is not None or message is None
            if fresh or message is None:
                message = _message_item(head, answer, index)
                items.append(message)
            plain = answer is None and head is None and fresh and _alone(parts, index - first)
            if isinstance(part, Text) and (plain or notes.get("~string")):
                message["content"], message = part.text, None
            else:
                message["content"].append(lower_part(part, "output_text"))
            continue
        message = None
        if (item := lower_made(part, answer, index)) is not None:
            items.append(item)
    return items


def _alone(parts: tuple[Part, ...], index: int) -> bool:
    following = parts[index + 1] if index + 1 < len(parts) else None
    plain = parts[index].residual is None or NAME not in parts[index].residual  # type: ignore[operator]
    return plain and not (isinstance(following, Text | Refusal) and "~item" not in own(NAME, following.residual))


def _message_item(head: Json | None, answer: str | None, index: int) -> Json:
    if head is not None:
        return {"role": "assistant", **head, "content": []}
    if answer is None:
        return {"role": "assistant", "content": []}
    return {"id": f"msg_{answer}_{index}", "type": "message", "role": "assistant", "status": "completed", "content": []}


def lower_made(part: Part, answer: str | None, index: int) -> Json | None:
    """The item of a part that is one of its own; None where this dialect has no word for it."""
    out = own(NAME, part.residual)
    mine = part.residual is not None and NAME in part.residual
    if isinstance(part, ToolCall):
        if part.free:
            out["type"], out["input"] = "custom_tool_call", arguments_text(part)
        else:
            out["type"], out["arguments"] = "function_call", arguments_text(part)
        out["name"] = part.name
        put(out, call_id=part.id)
        if answer is not None and not mine:
            out["id"] = f"{'ctc' if part.free else 'fc'}_{answer}_{index}"
            if not part.free:
                out["status"] = "completed"
        return done(out)
    if isinstance(part, Reasoning):
        out["type"] = "reasoning"
        if not mine:
            out["id"] = f"rs_{answer or 'given'}_{index}"
        out["summary"] = [{"type": "summary_text", "text": text} for text in part.summary or ()]
        if part.text is not None:
            out["content"] = [{"type": "reasoning_text", "text": text} for text in _pieces(part.text, out)]
        put(out, encrypted_content=part.encrypted)
        return done(out)
    return part.residual[NAME] if isinstance(part, Opaque) and mine else None  # type: ignore[index]


def _pieces(text: str, notes: Json) -> list[str]:
    lengths = notes.get("~lengths")
    if lengths is None or sum(lengths) != len(text):
        return [text]
    pieces, start = [], 0
    for length in lengths:
        pieces.append(text[start : start + length])
        start += length
    return pieces


def lower_result(part: ToolResult) -> Json:
    out = own(NAME, part.residual)
    out["type"] = "custom_tool_call_output" if part.free else "function_call_output"
    put(out, call_id=part.call)
    if part.value is not None and not part.content:
        out["output"] = msgspec.json.encode(part.value).decode()
    elif part.content or "output" not in out:
        out["output"] = lower_content(part.content) if part.content else ""
    return done(out)
