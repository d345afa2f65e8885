"""The vendors' SDK types as shapes: what a wire object may hold, example by example and at random.

`examples` walks the whole graph of types from a root and yields one wire value for every field of every type that
can be reached, and one for every alternative of that field. `values` is a hypothesis strategy over the same graph.
"""

from __future__ import annotations

import base64
import datetime
import enum
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NotRequired, Required

import pydantic
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel
from typing_extensions import is_typeddict

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Field:
    type: Any
    required: bool


@dataclass(frozen=True)
class Scalar:
    name: str


@dataclass(frozen=True)
class Words:
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Object:
    """`fields` by wire key; types of fields are read when they are asked for, for types that hold themselves."""

    name: str
    source: Any
    fields: dict[str, Field] = field(default_factory=dict)


@dataclass(frozen=True)
class ListOf:
    item: Any


@dataclass(frozen=True)
class MapOf:
    item: Any


def alternatives(annotation: Any) -> list[Any]:
    """The shapes that a field of this annotation may have; null is left out."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return []
    if isinstance(annotation, typing.TypeVar | typing.ForwardRef | str):
        return [Scalar("any")]
    if hasattr(annotation, "__value__"):
        return alternatives(annotation.__value__)
    if origin is typing.Annotated or origin in (Required, NotRequired):
        return alternatives(args[0])
    if origin is typing.Union or isinstance(annotation, types.UnionType):
        return [shape for arg in args for shape in alternatives(arg)]
    if origin is Literal:
        return [Words(args)]
    name = getattr(origin, "__name__", "")
    if name in ("list", "List", "Iterable", "Sequence", "SequenceNotStr") or annotation is list:
        items = alternatives(args[0]) if args else [Scalar("any")]
        return [ListOf(item) for item in items]
    if name in ("dict", "Dict", "Mapping") or annotation is dict:
        items = alternatives(args[1]) if len(args) > 1 else [Scalar("any")]
        return [MapOf(item) for item in items]
    if is_typeddict(annotation) or (isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)):
        return [shape_of(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [Words(words)] if (words := tuple(member.value for member in annotation)) else []
    scalars = {str: "str", int: "int", float: "float", bool: "bool", bytes: "bytes", datetime.datetime: "time",
               object: "any", Any: "any"}  # fmt: skip
    return [Scalar(scalars[annotation])] if annotation in scalars else []  # an open file, an image of PIL


@cache
def shape_of(source: Any) -> Object:
    """The shape of a TypedDict or a pydantic model."""
    name = source.__qualname__ if source.__module__.startswith("google") else _unique(source)
    shape = Object(name, source)
    if is_typeddict(source):
        for key, annotation in typing.get_type_hints(source, include_extras=True).items():
            # `__required_keys__` misses those whose annotation is a string: these types are read here instead.
            needed = typing.get_origin(annotation) in (Required,)
            shape.fields[key] = Field(_unwrapped(annotation), needed or key in source.__required_keys__)
        return shape
    for key, info in source.model_fields.items():
        generator = source.model_config.get("alias_generator")
        wire = info.alias or (to_camel(key) if generator is not None else key)
        # In these SDKs an answer's optional fields are those that may be null; a server may leave them out.
        shape.fields[wire] = Field(info.annotation, info.is_required())
    return shape


def _unwrapped(annotation: Any) -> Any:
    while typing.get_origin(annotation) in (Required, NotRequired):
        annotation = typing.get_args(annotation)[0]
    return annotation


def _unique(source: Any) -> str:
    """Types of one name in several modules are told apart by the module."""
    module = source.__module__.rpartition(".")[2]
    plain = source.__name__
    return plain if module.replace("_", "") == plain.lower() else f"{module}.{plain}"


_PLAIN = {"str": "s", "int": 3, "float": 0.5, "bool": True, "any": {"k": [1, "v"]}, "time": "2026-01-02T03:04:05Z",
          "bytes": base64.b64encode(b"bytes").decode()}  # fmt: skip


def minimal(shape: Any, seen: tuple[Any, ...] = ()) -> Any:
    """The smallest value of a shape: required fields alone."""
    match shape:
        case Scalar():
            return _PLAIN[shape.name]
        case Words():
            return shape.values[0]
        case ListOf():
            return [minimal(shape.item, seen)]
        case MapOf():
            return {"key": minimal(shape.item, seen)}
        case Object():
            return {
                key: minimal(_first(alternatives(each.type), (*seen, shape)), (*seen, shape))
                for key, each in shape.fields.items()
                if each.required
            }
    raise TypeError(shape)


def _first(shapes: list[Any], seen: tuple[Any, ...]) -> Any:
    """The simplest of several shapes, and none that is under way already."""
    order = {Scalar: 0, Words: 1, MapOf: 2, ListOf: 3, Object: 4}
    fit = [shape for shape in shapes if shape not in seen and getattr(shape, "item", None) not in seen]
    return min(fit or [Scalar("any")], key=lambda shape: order[type(shape)])


@dataclass(frozen=True)
class Example:
    """A wire value in which the field `type`.`field` stands at `path`."""

    type: str
    field: str
    path: Path
    value: Any


def examples(*roots: Object) -> Iterator[Example]:
    """One value for each alternative of each field of each type below the roots."""
    queue: deque[tuple[Object, Path, Callable[[Any], Any]]] = deque((root, (), lambda value: value) for root in roots)
    visited = set(roots)
    while queue:
        shape, path, wrap = queue.popleft()
        base = minimal(shape)
        for key, each in shape.fields.items():
            for alternative in alternatives(each.type):
                inner, inside, put = _open(alternative)
                here = (*path, key)
                yield Example(shape.name, key, here, wrap({**base, key: minimal(alternative)}))
                if isinstance(inner, Object) and inner not in visited:
                    visited.add(inner)
                    queue.append((inner, (*here, *inside), _into(wrap, base, key, put)))


def _into(wrap: Callable[[Any], Any], base: Any, key: str, put: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: wrap({**base, key: put(value)})


def _open(shape: Any) -> tuple[Any, Path, Callable[[Any], Any]]:
    """What stands innermost in lists and maps, where, and how to put it there."""
    if isinstance(shape, ListOf):
        inner, path, put = _open(shape.item)
        return inner, (0, *path), lambda value: [put(value)]
    if isinstance(shape, MapOf):
        inner, path, put = _open(shape.item)
        return inner, ("key", *path), lambda value: {"key": put(value)}
    return shape, (), lambda value: value


TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["", " a", "é", "\U0001f600", '{"a": 1}'])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, -2.25]) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
_RANDOM = {
    "str": TEXT, "int": st.integers(0, 10**6), "float": st.sampled_from([0.0, 0.5, 1.0, 2.25, 1e9]),
    "bool": st.booleans(), "any": JSON, "time": st.just("2026-01-02T03:04:05Z"),
    "bytes": st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()),
}  # fmt: skip


@st.composite
def values(draw: st.DrawFn, shape: Any, depth: int = 4) -> Any:
    """Wire values of a shape. Deeper down optional fields become rarer; some that may be null are null."""
    match shape:
        case Scalar():
            return draw(_RANDOM[shape.name])
        case Words():
            return draw(st.sampled_from(shape.values))
        case ListOf():
            count = draw(st.integers(0, 3 if depth > 2 else 1 if depth > 0 else 0))
            return [draw(values(shape.item, depth - 1)) for _ in range(count)]
        case MapOf():
            return {draw(TEXT): draw(values(shape.item, depth - 1)) for _ in range(draw(st.integers(0, 2)))}
    optional = [key for key, each in shape.fields.items() if not each.required]
    chosen = draw(st.sets(st.sampled_from(optional), max_size=4 if depth > 1 else 1)) if optional and depth > 0 else ()
    out = {}
    for key, each in shape.fields.items():
        if each.required or key in chosen:
            out[key] = draw(field_values(each.type, depth - 1))
    return out


@st.composite
def field_values(draw: st.DrawFn, annotation: Any, depth: int) -> Any:
    """Wire values of a field's annotation. Lists of several kinds of things are mixed."""
    shapes = alternatives(annotation)
    if type(None) in typing.get_args(annotation) and draw(st.integers(0, 5)) == 0:
        return None
    if not shapes:
        return None
    if depth <= 0:
        return draw(values(_first(shapes, ()), depth))
    lists = [shape for shape in shapes if isinstance(shape, ListOf)]
    if len(lists) > 1 and (len(lists) == len(shapes) or draw(st.booleans())):
        count = draw(st.integers(0, 4))
        return [draw(values(draw(st.sampled_from(lists)).item, depth - 1)) for _ in range(count)]
    return draw(values(draw(st.sampled_from(shapes)), depth))
