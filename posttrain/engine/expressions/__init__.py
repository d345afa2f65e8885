"""Expressions of workflows: one grammar, one evaluator (see expressions.lark and evaluate.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.conditions import decide
from posttrain.engine.expressions.evaluate import evaluate, evaluate_bool
from posttrain.engine.expressions.gotext import to_json, to_text
from posttrain.engine.expressions.grammar import ExpressionError, ParseError
from posttrain.engine.expressions.names import called_names, identifiers
from posttrain.engine.expressions.sprig import SPRIG

ARGO_FUNCTIONS: dict[str, Any] = {
    "asInt": functions.to_int,
    "asFloat": functions.to_float,
    "jsonpath": functions.jsonpath,
    "toJson": functions.to_json_text,
    "sprig": SPRIG,
}


def known_function(name: str) -> bool:
    """Whether an expression may call `name` (plain, or `sprig.` and a name)."""
    family, _, member = name.partition(".")
    if family == "sprig":
        return member in SPRIG
    return name in functions.BUILTINS or name in ARGO_FUNCTIONS


def with_functions(variables: Mapping[str, Any]) -> dict[str, Any]:
    """An environment of nested variables with Argo's functions beside them."""
    return {**variables, **ARGO_FUNCTIONS}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested mappings; where both `a` and `a.b` exist, `a` is the mapping."""
    tree: dict[str, Any] = {}
    for name in sorted(flat, key=lambda one: one.count(".")):
        *path, leaf = name.split(".")
        place = tree
        for step in path:
            below = place.get(step)
            if not isinstance(below, dict):
                below = place[step] = {}
            place = below
        if not isinstance(place.get(leaf), dict):
            place[leaf] = flat[name]
    return tree


__all__ = [
    "ARGO_FUNCTIONS", "ExpressionError", "ParseError", "called_names", "decide", "evaluate", "evaluate_bool",
    "identifiers", "known_function", "nested", "to_json", "to_text", "with_functions",
]  # fmt: skip
