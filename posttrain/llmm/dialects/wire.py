"""What all dialects share: taking a wire object apart and putting it together again, without losing a key.

Invariants: a wire key is either a word of the IR or in the residual of its dialect, never both and never neither;
null is not a word, so it stays in the residual. Keys of the residual that begin with `~` are notes on form (a text
given as a string or as a list, a key left out) and never reach the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, TypeVar

import msgspec

from posttrain.errors import UserError
from posttrain.llmm.ir.chat import ToolCall
from posttrain.llmm.ir.origin import Json, Residual

T = TypeVar("T")
_decode = msgspec.json.Decoder().decode
ABSENT = "~absent"  # keys that the dialect usually writes and that were not there


class DialectError(UserError):
    """What came is not of the dialect. `field` is the path in it: each level that it passes through puts its own
    place before it, so that no path is built where nothing is wrong."""

    def within(self, place: str) -> DialectError:
        """The same error, seen from outside of `place`."""
        field = f"{place}.{self.field}" if self.field else place
        return DialectError(self.problem, field=field, value=self.value, remedy=self.remedy)


def rest(name: str, wire: Json, known: Set[str]) -> Residual | None:
    """The residual of `wire`: keys that are not `known`, and nulls."""
    for key, value in wire.items():
        if value is None or key not in known:
            return {name: {key: value for key, value in wire.items() if value is None or key not in known}}
    return None


def note(name: str, residual: Residual | None, **notes: Any) -> Residual:
    """`residual` with notes on form."""
    mine = {**residual[name]} if residual and name in residual else {}
    mine.update({f"~{key}": value for key, value in notes.items()})
    return {name: mine}


def kept(name: str, residual: Residual | None, key: str, value: Any) -> Residual:
    """`residual` with one wire key more."""
    mine = {**residual[name]} if residual and name in residual else {}
    mine[key] = value
    return {name: mine}


def absent(name: str, residual: Residual | None, wire: Json, keys: Iterable[str]) -> Residual | None:
    """`residual` with a note on those of `keys` that `wire` lacks."""
    missing = [key for key in keys if key not in wire]
    return note(name, residual, absent=missing) if missing else residual


def own(name: str, residual: Residual | None) -> Json:
    """A new wire object that begins with what the dialect itself had left over, notes included."""
    if residual is not None and (mine := residual.get(name)) is not None:
        return mine.copy()
    return {}


def done(wire: Json) -> Json:
    """`wire` without notes, and without the keys that were absent."""
    notes = [key for key in wire if key.startswith("~")]
    if notes:
        for key in wire.get(ABSENT, ()):
            wire.pop(key, None)
        for key in notes:
            del wire[key]
    return wire


def put(wire: Json, **fields: Any) -> None:
    """Set the fields that say something."""
    for key, value in fields.items():
        if value is not None:
            wire[key] = value


def as_list(value: Any, field: str) -> list[Any]:
    """`value`, which must be a list."""
    if not isinstance(value, list):
        raise DialectError("is no list", field=field, value=value)
    return value


def as_object(value: Any, field: str) -> Json:
    """`value`, which must be an object."""
    if not isinstance(value, dict):
        raise DialectError("is no object", field=field, value=value)
    return value


def as_text(value: Any, field: str) -> str:
    """`value`, which must be text."""
    if not isinstance(value, str):
        raise DialectError("is no text", field=field, value=value)
    return value


def each(values: Any, field: str, lift: Callable[[Json], T]) -> list[T]:
    """`lift` of each object of a list."""
    listed = as_list(values, field)
    try:
        return [lift(value) for value in listed]
    except (DialectError, TypeError, AttributeError):  # which one of them?
        return _carefully(listed, field, lift)


def _carefully(values: list[Any], field: str, lift: Callable[[Json], T]) -> list[T]:
    found: list[T] = []
    try:
        for value in values:
            found.append(lift(as_object(value, "")))
    except DialectError as problem:
        raise problem.within(f"{field}.{len(found)}") from None
    return found


def coded(table: Mapping[str, T], wire: Any, other: T) -> T | None:
    """The IR's word for a wire word: None for null, `other` for one that the table lacks."""
    return None if wire is None else table.get(wire, other) if isinstance(wire, str) else other


def recoded(table: Mapping[str, T], back: Mapping[T, str], word: T | None, said: Any, other: T, default: str) -> Any:
    """The wire's word for the IR's: the one that was `said` where it means the same, else the usual one."""
    if word is None or coded(table, said, other) == word:
        return said
    return back.get(word, default)


def object_of(call: ToolCall) -> Json:
    """A call's arguments as the object that a dialect needs: free text stands under `input`, other text that is none
    under `~text`."""
    given = call.arguments
    if call.free:
        return {"input": given}
    if type(given) is str:
        try:
            value = _decode(given)
        except msgspec.DecodeError:
            return {"~text": given} if given and not given.isspace() else {}
        return value if type(value) is dict else {"~text": given}
    return given if type(given) is dict else {"~text": given}
