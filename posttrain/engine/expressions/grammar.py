"""Parsing: the text of an expression or a condition becomes a tree of `Node`s.

The grammar is expressions.lark. A tree is a value: parsing the same text twice gives the same
object from a cache, and nothing changes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken


class ExpressionError(Exception):
    """An expression that cannot be parsed or computed."""


class ParseError(ExpressionError):
    """An expression that cannot even be parsed."""


@dataclass(frozen=True, slots=True)
class Node:
    """`kind` says what it is; `value` holds a literal, a name or an operator; `parts` its operands."""

    kind: str
    value: Any = None
    parts: tuple[Node | None, ...] = ()


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = Path(__file__).with_name("expressions.lark").read_text()
    return Lark(grammar, parser="lalr", start=["expression", "condition"], maybe_placeholders=True)


@lru_cache(maxsize=8192)
def parse_expression(text: str) -> Node:
    """The tree of an expr-lang expression. Raises ParseError with a place in the text."""
    try:
        tree = _parser().parse(text, start="expression")
    except UnexpectedInput as error:
        raise ParseError(_complaint(text, error)) from None
    except RecursionError:
        raise ParseError("expression is nested too deeply") from None
    return _build(tree)


@lru_cache(maxsize=8192)
def parse_condition(text: str) -> Node:
    """The tree of a `when` clause; an empty one gives a node of kind `nothing`."""
    try:
        tree = _parser().parse(text, start="condition")
    except UnexpectedCharacters as error:
        raise ParseError(f"Invalid token: '{text[error.pos_in_stream or 0]}'") from None
    except UnexpectedInput:
        bare = re.sub(r"'(\\.|[^'\\])*'|\"(\\.|[^\"\\])*\"", "", text)
        if bare.count("(") != bare.count(")"):
            raise ParseError("Unbalanced parenthesis") from None
        if re.search(r"[-+*/%=<>!~&|^?(,]\s*$", bare):
            raise ParseError("Unexpected end of expression") from None
        raise ParseError("Cannot transition token types") from None
    except RecursionError:
        raise ParseError("condition is nested too deeply") from None
    return _build(tree)


def _complaint(text: str, error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        position, what = len(text), "unexpected token EOF"
    elif isinstance(error, UnexpectedToken):
        position, what = error.token.start_pos or 0, f"unexpected token {_token_name(error.token)}"
        if text[:position].rstrip()[-1:] == "{":
            keys = "a quoted string, a number, a identifier, or an expression enclosed in parentheses"
            what = f"a map key must be {keys} ({what})"
    else:
        position = error.pos_in_stream or 0
        what = (
            f"unrecognized character: U+{ord(text[position]):04X} '{text[position]}'" if position < len(text) else "?"
        )
        if text[position : position + 1] in "\"'`":
            what = "literal not terminated"
    before = text[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1)
    at_end = position >= len(text)
    column = max(column - at_end, 1) if at_end and column else max(column + 1, 1)
    shown = (text.splitlines() or [""])[min(line, len(text.splitlines()) or 1) - 1]
    return f"{what} ({line}:{column})\n | {shown}\n | {'.' * (column - 1)}^"


def _token_name(token: Token) -> str:
    if token.type in ("NAME",):
        return f'Identifier("{token}")'
    if token.type == "NUMBER":
        return f'Number("{token}")'
    if token.type == "STRING":
        return f'String("{token[1:-1]}")'
    return f'{"Bracket" if str(token) in "()[]{}" else "Operator"}("{token}")'


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}


def unquote(text: str) -> str:
    """The value of a quoted text; a backquoted one has no escapes."""
    body = text[1:-1]
    if text[0] == "`" or "\\" not in body:
        return body
    return re.sub(
        r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))",
        lambda m: chr(int(m[1] or m[2] or m[3], 16)) if m[1] or m[2] or m[3] else _ESCAPES.get(m[4], m[4]),
        body,
        flags=re.S,
    )


def _read_number(text: str) -> int | float:
    plain = text.replace("_", "")
    if plain[:2].lower() in ("0x", "0b", "0o"):
        return int(plain, 0)
    return float(plain) if re.search(r"[.eE]", plain) else int(plain)


_LITERALS = {"true": True, "false": False, "nil": None, "null": None}
_SPELLINGS = {"and": "&&", "or": "||", "not": "!", "^": "**"}
_SIMPLE = {"list", "map", "pair", "index", "cut", "ternary", "elvis", "coalesce", "interval", "optional_index"}


def _build(item: Any) -> Node:
    if isinstance(item, Token):
        return Node("token", str(item))
    kind, children = item.data, item.children
    if kind == "expression":
        return _program([one for one in children if one is not None])
    if kind == "condition":
        if len(children) > 1:
            return Node("list", None, tuple(map(_build, children)))
        return _build(children[0]) if children and children[0] is not None else Node("nothing")
    if kind in ("number", "text", "name", "key_name", "pointer", "of_element", "w_number", "w_text", "w_word"):
        return _leaf(kind, str(children[0]))
    if kind in ("member", "optional_member"):
        return Node(kind.replace("member", "index"), None, (_build(children[0]), Node("literal", str(children[1]))))
    if kind == "binary":
        left, operator, right = children
        return Node("binary", _SPELLINGS.get(str(operator), str(operator)), (_build(left), _build(right)))
    if kind == "denied":
        inner = Node("binary", str(children[2]), (_build(children[0]), _build(children[3])))
        return Node("unary", "!", (inner,))
    if kind == "unary":
        return Node("unary", _SPELLINGS.get(str(children[0]), str(children[0])), (_build(children[1]),))
    if kind == "call":
        return Node("call", None, (_build(children[0]), *_arguments(children[1])))
    if kind == "piped":
        return Node("call", None, (Node("name", str(children[1])), _build(children[0]), *_arguments(children[2])))
    if kind == "w_group":
        return _build(children[0]) if len(children) == 1 else Node("list", None, tuple(map(_build, children)))
    if kind in _SIMPLE:
        return Node(str(kind), None, tuple(None if one is None else _build(one) for one in children))
    return _build(children[0])


def _program(children: list[Any]) -> Node:
    if len(children) == 1:
        return _build(children[0])
    name, value, *rest = children
    return Node("let", str(name), (_build(value), _program(rest)))


def _arguments(tree: Tree | None) -> tuple[Node, ...]:
    return tuple(_build(one) for one in tree.children if one is not None) if tree is not None else ()


def _leaf(kind: str, text: str) -> Node:
    match kind:
        case "number":
            return Node("literal", _read_number(text))
        case "text":
            return Node("literal", unquote(text))
        case "name":
            return Node("literal", _LITERALS[text]) if text in _LITERALS else Node("name", text)
        case "key_name":
            return Node("literal", text)
        case "pointer":
            return Node("pointer", text[1:])
        case "of_element":
            return Node("index", None, (Node("pointer", ""), Node("literal", text)))
        case "w_number":
            return Node("literal", float(int(text, 16)) if text[:2].lower() == "0x" else float(text))
        case "w_text":
            return Node("quoted", unquote(text))
        case _:
            if text in ("true", "false"):
                return Node("literal", text == "true")
            return Node("literal", text[1:-1] if text[0] == "[" else text)
