"""The operators of expr-lang on two values, and what a value is to them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.dates import GoTime
from posttrain.engine.expressions.gotext import to_text
from posttrain.engine.expressions.grammar import ExpressionError


def fetch(owner: Any, key: Any) -> Any:
    """`owner[key]`: nil for a missing key of a map, from the end for a negative place in a list."""
    if isinstance(owner, Mapping):
        return owner.get(key)
    if isinstance(owner, (list, str)) and is_int(key):
        if not -len(owner) <= key < len(owner):
            raise ExpressionError(f"index out of range: {key} (array length is {len(owner)})")
        return owner[key]
    if isinstance(owner, GoTime) and isinstance(key, str):
        return owner.method(key)
    raise ExpressionError(f"cannot fetch {to_text(key)} from {'<nil>' if owner is None else type_name(owner)}")


def operate(operator: str, left: Any, right: Any) -> Any:
    """One binary operator of expr-lang other than && and ||."""
    match operator:
        case "==":
            return equal(left, right)
        case "!=":
            return not equal(left, right)
        case "in":
            return _contained(left, right)
        case "matches" | "contains" | "startsWith" | "endsWith":
            return _text_test(operator, left, right)
    if isinstance(left, GoTime) or isinstance(right, GoTime):
        return functions.operate_on_time(operator, left, right)
    numbers = is_number(left) and is_number(right)
    texts = isinstance(left, str) and isinstance(right, str)
    if operator in ("<", ">", "<=", ">=") and (numbers or texts):
        return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[operator]
    if operator == "+" and texts:
        return left + right
    if numbers:
        return _compute(operator, left, right)
    raise ExpressionError(f"invalid operation: {operator} (mismatched types {type_name(left)} and {type_name(right)})")


def _compute(operator: str, left: Any, right: Any) -> Any:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            if right == 0:
                return math.nan if left == 0 else math.copysign(math.inf, left)
            return left / right
        case "**":
            try:
                return math.pow(left, right)
            except OverflowError:
                return math.inf
            except ValueError:  # a root of a negative number, or zero to a negative power
                return math.inf if left == 0 else math.nan
        case "%" if is_int(left) and is_int(right):
            if right == 0:
                raise ExpressionError("integer divide by zero")
            return int(math.fmod(left, right))
    raise ExpressionError(f"invalid operation: {operator} (mismatched types {type_name(left)} and {type_name(right)})")


def equal(left: Any, right: Any) -> bool:
    """Deep equality; a number equals only a number, true only true."""
    if is_number(left) and is_number(right):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def _contained(item: Any, collection: Any) -> bool:
    if collection is None:
        return False
    if isinstance(collection, list):
        return any(equal(item, one) for one in collection)
    if isinstance(collection, Mapping):
        return item in collection
    raise ExpressionError(f'operator "in" not defined on {type_name(collection)}')


def _text_test(operator: str, left: Any, right: Any) -> bool:
    if not (isinstance(left, str) and isinstance(right, str)):
        raise ExpressionError(
            f"invalid operation: {operator} (mismatched types {type_name(left)} and {type_name(right)})"
        )
    if operator == "matches":
        try:
            return re.search(functions.pattern(right), left) is not None
        except re.error as error:
            raise ExpressionError(f"error parsing regexp: {error}") from None
    return {"contains": right in left, "startsWith": left.startswith(right), "endsWith": left.endswith(right)}[operator]


def type_name(value: Any) -> str:
    """The word expr-lang has for the type of a value."""
    return functions.type_of(value) if value is not None else "nil"


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
