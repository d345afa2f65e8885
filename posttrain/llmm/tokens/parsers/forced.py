"""Calls that an engine is made to write: what a format's calls look like, as a structural tag of xgrammar. Pure.

Invariants: whatever such a tag lets a model write, the format's parser reads as calls of the tools that are forced,
with arguments that their schema allows. Formats of JSON and of XML leave a schema to xgrammar. Those that write
Python's literals or Gemma's are spelled out here: types, enumerations and what is required hold; bounds, patterns and
references within a schema do not.

Source of the tags: xgrammar's page "Structural Tag Usage" (0.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

JSON = dict[str, Any]
Style = Literal["json", "qwen_xml", "glm_xml", "python", "gemma"]
_BLANKS = 2  # in a row: a model may otherwise write nothing else until its limit
_DEPTH = 2  # of objects and lists in values of any type
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Forced:
    """`open`, then calls with `separator` between them, then `close`; a call is `begin` (the tool's name for %s), its
    arguments and `end`. Without a separator there is one call: where each bears its number, or each ends the answer."""

    begin: str
    end: str
    open: str = ""
    close: str = ""
    separator: str | None = None
    style: Style = "json"
    never: str = ""  # what no text within the arguments may hold: it would end the call


def calls(form: Forced, offered: Mapping[str, JSON], *, several: bool) -> JSON:
    """The tag for calls of the tools offered: one, or `several` where the format can. `offered` maps names to JSON
    schemas. Raises ValueError where the format cannot spell a parameter's name."""
    tags = [
        {"type": "tag", "begin": form.begin % name, "end": form.end, "content": arguments(schema, form)}
        for name, schema in offered.items()
    ]
    if several and form.separator is not None:
        said: JSON = {
            "type": "tags_with_separator", "tags": tags, "separator": form.separator, "at_least_one": True,
        }  # fmt: skip
    else:
        said = _one_of(tags)
    return _sequence([*_texts(form.open), said, *_texts(form.close)])


def arguments(schema: JSON, form: Forced) -> JSON:
    """The form of a call's arguments. Raises ValueError."""
    if form.style == "python":
        return _sequence(_members(schema, _PYTHON, "%s=", _DEPTH))
    if form.style == "gemma":
        return _sequence([_text("{"), *_members(schema, _GEMMA, "%s:", _DEPTH), _text("}")])
    made = document(schema) | {"style": form.style}
    # xgrammar forgets the bounds of a text from which it keeps a marker out.
    bounded = form.style == "json" and re.search(r'"(min|max)Length"', json.dumps(schema))
    return made | {"excludes": [form.never]} if form.never and not bounded else made


def document(schema: JSON) -> JSON:
    """The form of a JSON text of this schema."""
    return {"type": "json_schema", "json_schema": schema or {"type": "object"}, "max_whitespace_cnt": _BLANKS}


@dataclass(frozen=True)
class _Spelling:
    """How literals are written: `string` is a form, `key` how a key within an object is."""

    true: str
    false: str
    null: str
    string: JSON
    quote: str
    key: str
    comma: str = ", "


_PYTHON = _Spelling(
    "True", "False", "None", {"type": "regex", "pattern": r'"([^"\\\x00-\x1f]|\\["\\nrt])*"'}, '"', '"%s": '
)
_GEMMA = _Spelling(
    "true", "false", "null",
    {"type": "tag", "begin": '<|"|>', "content": {"type": "any_text", "excludes": ["<tool_call|>"]}, "end": '<|"|>'},
    '<|"|>', "%s:", ",",
)  # fmt: skip
_INTEGER = {"type": "regex", "pattern": "-?(0|[1-9][0-9]{0,17})"}
_NUMBER = {"type": "regex", "pattern": r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?"}


def _members(schema: JSON, spelling: _Spelling, key: str, depth: int) -> list[JSON]:
    """The members of an object: those that are required in their order, then what is given of the others."""
    properties: JSON = schema.get("properties") or {}
    if wrong := next((name for name in properties if not _NAME.fullmatch(name)), None):
        raise ValueError(f"{wrong!r} is no name that this model's format can write")
    required = [name for name in properties if name in (schema.get("required") or ())]
    written = {name: [_text(key % name), _value(each, spelling, depth)] for name, each in properties.items()}
    optional = [[_text(spelling.comma), *written[name]] for name in properties if name not in required]
    made: list[JSON] = []
    for name in required:
        made += [*([_text(spelling.comma)] if made else []), *written[name]]
    if made:
        return [*made, *(_maybe(each) for each in optional)]
    firsts = [_sequence([*each[1:], *map(_maybe, optional[at + 1 :])]) for at, each in enumerate(optional)]
    return [_maybe([_one_of(firsts)])] if firsts else []


def _value(schema: Any, spelling: _Spelling, depth: int) -> JSON:
    """One value, by its schema; of any type where that does not tell."""
    schema = schema if isinstance(schema, dict) else {}
    if "const" in schema or "enum" in schema:
        listed = schema["enum"] if "enum" in schema else [schema["const"]]
        return _one_of([_text(_literal(each, spelling)) for each in listed])
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _one_of([_value(each, spelling, depth) for each in branches])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _one_of([_value({**schema, "type": kind}, spelling, depth) for kind in kinds])
    match kinds:
        case "string":
            return spelling.string
        case "integer":
            return _INTEGER
        case "number":
            return _NUMBER
        case "boolean":
            return _one_of([_text(spelling.true), _text(spelling.false)])
        case "null":
            return _text(spelling.null)
        case "array":
            return _list(_value(schema.get("items"), spelling, depth - 1), spelling)
        case "object" if schema.get("properties"):
            return _sequence([_text("{"), *_members(schema, spelling, spelling.key, depth - 1), _text("}")])
        case "object":
            return _text("{}")
    scalars = [_value({"type": kind}, spelling, 0) for kind in ("string", "number", "boolean", "null")]
    return _one_of([*scalars, _list(_value(None, spelling, depth - 1), spelling)] if depth > 0 else scalars)


def _literal(value: Any, spelling: _Spelling) -> str:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") if spelling is _PYTHON else value
        return f"{spelling.quote}{text}{spelling.quote}"
    if value is None or isinstance(value, bool):
        return {None: spelling.null, True: spelling.true, False: spelling.false}[value]
    if isinstance(value, list):
        return f"[{spelling.comma.join(_literal(each, spelling) for each in value)}]"
    if isinstance(value, dict):
        members = (spelling.key % name + _literal(each, spelling) for name, each in value.items())
        return f"{{{spelling.comma.join(members)}}}"
    return repr(value)


def _list(item: JSON, spelling: _Spelling) -> JSON:
    more = {"type": "star", "content": _sequence([_text(spelling.comma), item])}
    return _sequence([_text("["), _maybe([item, more]), _text("]")])


def _text(value: str) -> JSON:
    return {"type": "const_string", "value": value}


def _texts(value: str) -> list[JSON]:
    return [_text(value)] if value else []


def _sequence(elements: Sequence[JSON]) -> JSON:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements) or [_text("")]}


def _one_of(elements: Sequence[JSON]) -> JSON:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def _maybe(elements: Sequence[JSON]) -> JSON:
    return {"type": "optional", "content": _sequence(elements)}
