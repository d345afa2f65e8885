"""What an expression mentions: its names, its dotted paths, and which of them it calls."""

from __future__ import annotations

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.grammar import Node, parse_expression


def identifiers(text: str) -> list[str]:
    """Every name and dotted path that an expression mentions, as the controller looks for missing ones.

    Built-in functions are no names; a local name of `let` is one.
    """
    found: dict[str, None] = {}

    def visit(node: Node, called: bool = False) -> None:
        if node.kind == "name" and not (called and node.value in functions.BUILTINS):
            found.setdefault(node.value)
        if node.kind == "index" and (path := path_of(node)):
            found.setdefault(path)
        for place, part in enumerate(node.parts):
            if part is not None:
                visit(part, called=node.kind == "call" and place == 0)

    visit(parse_expression(text))
    return list(found)


def called_names(text: str) -> set[str]:
    """The plain and dotted names that an expression calls as functions."""
    found: set[str] = set()

    def visit(node: Node) -> None:
        if node.kind == "call" and (callee := node.parts[0]) is not None:
            path = callee.value if callee.kind == "name" else path_of(callee)
            if path:
                found.add(path)
        for part in node.parts:
            if part is not None:
                visit(part)

    visit(parse_expression(text))
    return found


def path_of(node: Node) -> str | None:
    steps: list[str] = []
    while node.kind == "index" and node.parts[1] is not None and node.parts[0] is not None:
        key = node.parts[1]
        if key.kind != "literal" or not isinstance(key.value, str):
            return None
        steps.insert(0, key.value)
        node = node.parts[0]
    return ".".join([node.value, *steps]) if node.kind == "name" else None
