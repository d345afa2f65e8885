"""What two values of the IR have in common, and where they first differ.

`bare` leaves out what says nothing of the conversation itself: residuals, origins, empty texts and lists, and whether
a call's arguments came as text or as an object. Two elements that say the same are equal bare.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec

from posttrain.llmm.ir.chat import Message, Part, Refusal, Text, ToolCall, arguments_object

T = TypeVar("T")
_SKIPPED = frozenset(("residual", "origin"))


def bare(value: T) -> T:
    """`value` without residuals, origins and empty texts."""
    if isinstance(value, tuple):
        return cast(T, tuple(bare(each) for each in value))
    if not isinstance(value, msgspec.Struct):
        return value
    struct: Any = value
    changed: dict[str, Any] = {name: None for name in _SKIPPED if getattr(value, name, None) is not None}
    if isinstance(value, ToolCall) and isinstance(value.arguments, str) and not value.free:
        with suppress(ValueError):  # text that is no JSON stays as it is
            changed["arguments"] = arguments_object(value)
    for name in struct.__struct_fields__:
        old = getattr(struct, name)
        if old == () and name == "citations":
            changed[name] = None
        elif isinstance(old, msgspec.Struct | tuple) and name not in _SKIPPED:
            new: Any = bare(old)
            if name in ("parts", "content"):
                new = tuple(part for part in new if not _empty(part))
            if new is not old:
                changed[name] = new
    return msgspec.structs.replace(struct, **changed) if changed else value


def _empty(part: Part) -> bool:
    return isinstance(part, Text | Refusal) and not part.text


def same(one: Message, other: Message) -> bool:
    """Whether two messages say the same."""
    return one == other or bare(one) == bare(other)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """(path, Type.field, value) of all that is said in `value`: defaults are not."""
    if not isinstance(value, msgspec.Struct):
        return
    for name, default in zip(value.__struct_fields__, _defaults(type(value)), strict=True):
        found = getattr(value, name)
        if found is None or found == () or found == default or name in _SKIPPED:
            continue
        where = f"{path}.{name}" if path else name
        if isinstance(found, tuple) and found and isinstance(found[0], msgspec.Struct):
            for index, each in enumerate(found):
                yield from leaves(each, f"{where}.{index}")
        elif isinstance(found, msgspec.Struct):
            yield from leaves(found, where)
        else:
            yield where, f"{type(value).__name__}.{name}", found


def _defaults(kind: type[msgspec.Struct]) -> list[Any]:
    given = kind.__struct_defaults__
    return [msgspec.NODEFAULT] * (len(kind.__struct_fields__) - len(given)) + list(given)


def first_difference(one: Any, other: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """(path, this, that) where two values first differ, in the order of their fields; None where they are equal.

    A value that is missing on one side is shown as None.
    """
    if type(one) is type(other) and isinstance(one, msgspec.Struct):
        for name in one.__struct_fields__:
            found = first_difference(getattr(one, name), getattr(other, name), f"{path}.{name}" if path else name)
            if found is not None:
                return found
        return None
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for index in range(max(len(one), len(other))):
            here = f"{path}.{index}" if path else str(index)
            if index >= len(one) or index >= len(other):
                missing = index >= len(one)
                return here, None if missing else one[index], other[index] if missing else None
            if (found := first_difference(one[index], other[index], here)) is not None:
                return found
        return None
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            here = f"{path}.{key}" if path else str(key)
            if (found := first_difference(one.get(key), other.get(key), here)) is not None:
                return found
        return None
    equal = one == other and (type(one) is type(other) or _are_numbers(one, other))
    return None if equal else (path, one, other)


def _are_numbers(one: Any, other: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
