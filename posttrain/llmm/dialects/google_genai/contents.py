"""Contents of the conversation: one is several messages of the IR where it holds tool results."""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.google_genai.parts import lift_parts, lower_parts
from posttrain.llmm.dialects.wire import absent, as_object, done, note, own, rest
from posttrain.llmm.ir.chat import Message, Part, Role, ToolResult
from posttrain.llmm.ir.origin import Json, Residual

_ROLES: Final[dict[Any, Role]] = {"user": "user", "model": "assistant"}
_ROLE_WORDS: Final = {"user": "user", "tool": "user", "assistant": "model", "system": "user", "developer": "user"}


def lift_content(wire: Any, index: int, into: list[Message]) -> None:
    said = as_object(wire, f"contents.{index}").get("role")
    role, parts, residual = lift_message(wire, f"contents.{index}", _ROLES.get(said, "user"))
    if role != "assistant" and any(type(part) is ToolResult for part in parts):
        joined = False
        for run in _runs(parts):
            kind: Role = "tool" if type(run[0]) is ToolResult else "user"
            into.append(Message(role=kind, parts=run, joined=joined, residual=residual))
            joined, residual = True, None
    else:
        into.append(Message(role=role, parts=parts, residual=residual))


def _runs(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Each tool result by itself, and what stands between them."""
    runs: list[tuple[Part, ...]] = []
    for part in parts:
        if type(part) is not ToolResult and runs and type(runs[-1][0]) is not ToolResult:
            runs[-1] = (*runs[-1], part)
        else:
            runs.append((part,))
    return runs


def lift_message(wire: Json, field: str, role: Role) -> tuple[Role, tuple[Part, ...], Residual | None]:
    """A content's parts, with a note on how its role was said."""
    residual = absent(NAME, rest(NAME, wire, {"role", "parts"}), wire, ("role", "parts"))
    if wire.get("role") is not None and _ROLE_WORDS[role] != wire["role"]:
        residual = note(NAME, residual, role=wire["role"])
    return role, lift_parts(wire.get("parts"), f"{field}.parts"), residual


def lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    last: Any = None  # the role of the content before, and its parts
    tail: list[Json] | None = None
    for message in messages:
        parts, role = lower_parts(message.parts), _ROLE_WORDS[message.role]
        if message.joined and tail is not None and (last == role or last is None or last == "function"):
            tail += parts
        elif message.residual is None:
            found.append({"role": role, "parts": parts})
            last, tail = role, parts
        else:
            found.append(wire := lower_message(message, parts))
            last, tail = wire.get("role"), wire.get("parts")
    return found


def lower_message(message: Message, parts: list[Json]) -> Json:
    if message.residual is None:
        return {"role": _ROLE_WORDS[message.role], "parts": parts}
    out = own(NAME, message.residual)
    role = _ROLE_WORDS[message.role]
    if "role" not in out or message.role == "assistant":
        out["role"] = out.get("~role", role)
    if parts or "parts" not in out:
        out["parts"] = parts
    return done(out)
