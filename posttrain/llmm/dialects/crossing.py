"""Crossing from one dialect to another: lift, fit, lower, and list what was lost on the way.

A loss is a word of the source that the target has none for, a residual of another dialect, or a vendor's seal
(signatures, encrypted reasoning), which no other vendor could open. What is not listed is in what comes out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.words import JUDGED, LACKS, UNSAID
from posttrain.llmm.ir.chat import (
    ChatRequest,
    ChatResponse,
    Media,
    Message,
    Opaque,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.stream import Delta, End, Frame, PartBegin, PartDelta, PartEnd

Kind = Literal["request", "response"]


@dataclass(frozen=True)
class Loss:
    """What was lost: where in the IR, its value, and why."""

    path: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Crossing:
    wire: Json
    losses: tuple[Loss, ...]


def convert(source: str, target: str, wire: Json, kind: Kind = "request") -> Crossing:
    """`wire` of one dialect as one of another, with the losses. Raises DialectError where it is none of `source`."""
    here, there = dialect(source), dialect(target)
    foreign = here.base != there.base
    value: Any = here.lift_request(wire) if kind == "request" else here.lift_response(wire)
    lost = tuple(losses(value, there.base, foreign=foreign))
    fit = fitted(value, there.base) if foreign else value
    return Crossing(there.lower_request(fit) if kind == "request" else there.lower_response(fit), lost)


def translate(source: str, target: str, wire: Json, kind: Kind = "request") -> Json:
    """`convert` for whoever does not ask what was lost."""
    here, there = dialect(source), dialect(target)
    foreign = here.base != there.base
    if kind == "request":
        request = here.lift_request(wire)
        return there.lower_request(fitted(request, there.base) if foreign else request)
    response = here.lift_response(wire)
    return there.lower_response(fitted(response, there.base) if foreign else response)


Value = TypeVar("Value", ChatRequest, ChatResponse)


def fitted(value: Value, target: str) -> Value:
    """`value` of another vendor as the target can take it: calls and their results named and with ids, seals taken
    off."""
    by_name = target == "google_genai"
    if isinstance(value, ChatRequest):
        messages = value.messages
        return value if _fits(messages, by_name) else replace(value, messages=_fitted(messages, by_name))
    if all(_fits((choice.message,), by_name) for choice in value.choices):
        return value
    choices = [replace(choice, message=_fitted((choice.message,), by_name)[0]) for choice in value.choices]
    return replace(value, choices=tuple(choices))


_SEALABLE = frozenset((Text, ToolCall, Media, Reasoning))
_SEALS = ("signature", "encrypted")


def _fits(messages: tuple[Message, ...], by_name: bool) -> bool:
    """Whether no call or result lacks what they are matched by, and no part bears a seal."""
    part: Any
    for message in messages:
        for part in message.parts:
            kind = type(part)
            if kind is ToolResult:
                if part.call is None or (by_name and part.name is None):
                    return False
            elif kind in _SEALABLE and (
                part.signature is not None
                or (kind is ToolCall and part.id is None and not by_name)
                or (kind is Reasoning and part.encrypted is not None)
            ):
                return False
    return True


def _fitted(messages: tuple[Message, ...], by_name: bool) -> tuple[Message, ...]:
    names: dict[str, str] = {}  # of every call, by its id
    waiting: dict[str | None, str] = {}  # of those that have no result yet, in their order
    count = 0
    out: list[Message] = []
    part: Any
    for message in messages:
        parts: list[Any] = []
        same = True
        for part in message.parts:
            kind, new = type(part), part
            if kind is ToolResult:
                call, name = part.call, part.name
                if call is None:
                    call = next((id_ for id_, called in waiting.items() if name is None or name == called), None)
                    if call is not None and not by_name:
                        new = replace(part, call=call)
                elif by_name and name is None and call in names:
                    new = replace(part, name=names[call])
                waiting.pop(call, None)
            elif kind is ToolCall:
                id_ = part.id or f"call_{count}"
                count += 1
                names[id_] = waiting[id_] = part.name
                if part.id is None and not by_name:
                    new = replace(part, id=id_)
            if kind in _SEALABLE and (part.signature is not None or (kind is Reasoning and part.encrypted is not None)):
                new = replace(new, **{name: None for name in _SEALS if getattr(new, name, None) is not None})
            parts.append(new)
            same = same and new is part
        out.append(message if same else replace(message, parts=tuple(parts)))
    return tuple(out)


def fitted_frame(frame: Frame) -> Frame:
    """A frame of a stream for a dialect other than its own: without what is of that one's wire and without its seals; a
    call that has no id gets one."""
    return Frame(deltas=tuple(filter(None, map(_fitted_delta, frame.deltas))))


def _fitted_delta(delta: Delta) -> Delta | None:
    if isinstance(delta, End):
        return End()
    if isinstance(delta, PartDelta):
        return None if delta.field == "signature" else delta
    if not isinstance(delta, PartBegin | PartEnd) or delta.value is None:
        return delta
    [message] = _fitted((Message(role="assistant", parts=(delta.value,)),), by_name=True)
    value = message.parts[0]
    if isinstance(delta, PartBegin) and isinstance(value, ToolCall) and value.id is None:
        value = replace(value, id=f"call_{secrets.token_hex(8)}")
    return replace(delta, value=value)


def losses(value: Any, target: str, *, foreign: bool = True) -> list[Loss]:
    """What `target` cannot say of `value`. With `foreign`, seals are another vendor's."""
    found: list[Loss] = []
    _lost(value, "", target, None, foreign, found)
    return found


def _lost(value: Any, path: str, target: str, role: str | None, foreign: bool, found: list[Loss]) -> None:
    kind: Any = type(value)
    plan = _plan(kind, target, foreign)
    residual = value.residual if plan.residual else None
    if plan.whole is not None and (residual is None or target not in residual) and value.type is not None:
        found.append(Loss(path, value.type, plan.whole.format(target=target)))
        return
    dot = f"{path}." if path else ""
    for field, reason in plan.unsaid:
        said = getattr(value, field)
        if said is not None and said != () and not (field == "free" and said is False):
            found.append(Loss(f"{dot}{field}", said, reason))
    if kind is Message:
        role = value.role
    if plan.judged and _worth_it(kind, value):
        for field, reason in UNSAID[target](value, role):
            said = getattr(value, field) if field else kind.__name__
            found.append(Loss(f"{dot}{field}" if field else path, said, f"{target}: {reason}"))
    if residual is not None:
        for name, left in residual.items():
            if name != target:
                found.extend(_left(left, f"{dot}~{name}"))
    for field in plan.children:
        held = getattr(value, field)
        if type(held) is tuple:
            for index, each in enumerate(held):
                if isinstance(each, msgspec.Struct):
                    _lost(each, f"{dot}{field}.{index}", target, role, foreign, found)
        elif isinstance(held, msgspec.Struct):
            _lost(held, f"{dot}{field}", target, role, foreign, found)


def _worth_it(kind: type, value: Any) -> bool:
    """Whether the judge could have a word to say: most texts, calls and messages give it nothing to judge."""
    if kind is Text:
        return value.citations is not None
    if kind is ToolCall:
        return value.free or type(value.arguments) is str
    if kind is Message and value.role != "developer":
        parts = value.parts
        usual = Text if value.role != "tool" else ToolResult
        return not all(type(part) is usual for part in parts)
    return True


@dataclass(frozen=True)
class _Plan:
    """How elements of a type are looked at. `whole`: why an element with a type of its vendor's own is lost."""

    whole: str | None
    unsaid: tuple[tuple[str, str], ...]
    judged: bool
    residual: bool
    children: tuple[str, ...]


_WHOLE = {Opaque: "{target} has no such part", Tool: "a tool that another vendor defines"}
_PLAIN = frozenset(("residual", "origin", "arguments", "value", "parameters", "schema", "metadata", "bytes"))
_SIMPLE = frozenset(("text", "model", "id", "name", "role", "index", "stop", "joined", "call", "type"))


@cache
def _plan(kind: type[msgspec.Struct], target: str, foreign: bool) -> _Plan:
    fields = kind.__struct_fields__
    lacks = LACKS[target].get(kind, frozenset())
    unsaid = [(field, f"{target} has no word for it") for field in fields if field in lacks]
    if foreign:
        seal = "a vendor's seal, of worth to that vendor alone"
        unsaid += [(field, seal) for field in _SEALS if field in fields and field not in lacks]
    children = tuple(field for field in fields if field not in _PLAIN and field not in _SIMPLE and field not in lacks)
    return _Plan(_WHOLE.get(kind), tuple(unsaid), kind in JUDGED, "residual" in fields, children)


NESTED = ("~inner", "~item", "~source")  # notes that hold wire keys of an object within


def _left(left: Json, path: str) -> Iterator[Loss]:
    for key, value in left.items():
        if key in NESTED and isinstance(value, dict):
            yield from _left(value, path)
        elif key == "~whole":
            yield Loss(path, value, "no word of the IR")
        elif key[:1] != "~" and key != "type" and value is not None and value not in ({}, []):
            yield Loss(f"{path}.{key}", value, "no word of the IR")
