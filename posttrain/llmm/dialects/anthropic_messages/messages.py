"""Messages of the conversation: a user's is several of the IR where it holds tool results."""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.anthropic_messages.blocks import lift_content, lower_blocks, lower_content
from posttrain.llmm.dialects.wire import DialectError, as_object, done, note, own, rest
from posttrain.llmm.ir.chat import Message, Part, ToolResult
from posttrain.llmm.ir.origin import Json, Residual

_MESSAGE = frozenset(("role", "content"))


def lift_messages(wires: list[Any], into: list[Message]) -> None:
    count = 0
    try:
        for wire in wires:
            _lift_message(wire if type(wire) is dict else as_object(wire, ""), into)
            count += 1
    except DialectError as problem:
        raise problem.within(f"messages.{count}") from None


def _lift_message(wire: Json, into: list[Message]) -> None:
    role = wire.get("role")
    residual = rest(NAME, wire, _MESSAGE) if len(wire) > 2 else None
    parts = lift_content(wire.get("content"), "content")
    if role == "assistant":
        into.append(Message(role="assistant", parts=tuple(parts), residual=residual))
    elif role == "user":
        _split(parts, residual, into)
    elif role == "system":
        into.append(Message(role="system", parts=tuple(parts), residual=note(NAME, residual, listed=True)))
    else:
        raise DialectError("is no role", field="role", value=role)


def _split(parts: list[Part], residual: Residual | None, into: list[Message]) -> None:
    """One message for each tool result, and for each run of something else."""
    run: list[Part] = []
    joined = False
    for part in parts:
        if joined and not run and type(part) is ToolResult:
            into.append(Message(role="tool", parts=(part,), joined=True))
            continue
        if type(part) is not ToolResult:
            run.append(part)
            continue
        if run:
            into.append(Message(role="user", parts=tuple(run), joined=joined, residual=residual))
            run, joined, residual = [], True, None
        into.append(Message(role="tool", parts=(part,), joined=joined, residual=residual))
        joined, residual = True, None
    if run or not parts:
        into.append(Message(role="user", parts=tuple(run), joined=joined, residual=residual))


_ROLE_WORDS: Final = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system",
                      "developer": "system"}  # fmt: skip


def lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        role, parts, residual = _ROLE_WORDS[message.role], message.parts, message.residual
        if message.joined and found and (before := found[-1])["role"] == role:
            said = before["content"]
            if type(said) is str:
                said = before["content"] = [{"type": "text", "text": said}]
            said += lower_blocks(parts)
        elif residual is None:
            found.append({"role": role, "content": lower_content(parts)})
        else:
            out = own(NAME, residual)
            out["role"], out["content"] = role, lower_content(parts)
            found.append(done(out))
    return found
