"""Computing a tree: the one evaluator of expressions, and of conditions, which are a variant of it (conditions.py).

Nothing is read but the given environment: a mapping whose values are texts, numbers, lists, nested
mappings and functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.gotext import to_text
from posttrain.engine.expressions.grammar import ExpressionError, Node, parse_expression
from posttrain.engine.expressions.names import path_of
from posttrain.engine.expressions.operators import fetch, is_int, is_number, operate, type_name

Environment = Mapping[str, Any]


def evaluate(text: str, environment: Environment) -> Any:
    """The value of an expr-lang expression. Raises ExpressionError."""
    return value_of(Evaluation(environment), parse_expression(text))


def value_of(evaluation: Evaluation, tree: Node) -> Any:
    """The value of a whole tree. What Python makes of values without measure or sense is an ExpressionError, too."""
    try:
        return evaluation.value(tree)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise ExpressionError(str(error) or type(error).__name__) from None


def evaluate_bool(text: str, environment: Environment) -> bool:
    """The value of an expression that must be true or false. Raises ExpressionError."""
    tree = parse_expression(text)
    try:
        value = value_of(Evaluation(environment), tree)
    except ExpressionError as error:
        raise ExpressionError(f"unable to evaluate expression '{text}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"unable to cast expression result '{to_text(value)}' to bool")
    return value


class Evaluation:
    """One walk over a tree; `element` holds what `#` and its like stand for."""

    def __init__(self, environment: Environment, element: dict[str, Any] | None = None):
        self.environment, self.element = environment, element or {}

    def value(self, node: Node | None) -> Any:
        if node is None:
            return None
        return getattr(self, "_" + node.kind)(node)

    def _literal(self, node: Node) -> Any:
        return node.value

    def _name(self, node: Node) -> Any:
        if node.value in self.environment:
            return self.environment[node.value]
        if node.value in functions.BUILTINS:
            return functions.BUILTINS[node.value]
        raise ExpressionError(f"unknown name {node.value}")

    def _pointer(self, node: Node) -> Any:
        if node.value not in self.element:
            raise ExpressionError("cannot use pointer accessor outside predicate")
        return self.element[node.value]

    def _let(self, node: Node) -> Any:
        value = self.value(node.parts[0])
        inner = Evaluation({**self.environment, str(node.value): value}, self.element)
        return inner.value(node.parts[1])

    def _list(self, node: Node) -> list[Any]:
        return [self.value(part) for part in node.parts if part is not None]

    def _map(self, node: Node) -> dict[str, Any]:
        pairs = [part.parts for part in node.parts if part is not None]
        return {to_text(self.value(key)): self.value(value) for key, value in pairs}

    def _ternary(self, node: Node) -> Any:
        condition = self.value(node.parts[0])
        if not isinstance(condition, bool):
            raise ExpressionError(f"non-bool expression (type {type_name(condition)}) used as condition")
        return self.value(node.parts[1] if condition else node.parts[2])

    def _elvis(self, node: Node) -> Any:
        first = self.value(node.parts[0])
        return first if first is True else self.value(node.parts[1])

    def _coalesce(self, node: Node) -> Any:
        first = self.value(node.parts[0])
        return self.value(node.parts[1]) if first is None else first

    def _interval(self, node: Node) -> list[int]:
        low, high = self.value(node.parts[0]), self.value(node.parts[1])
        if not (is_int(low) and is_int(high)):
            raise ExpressionError(f"invalid operation: .. (mismatched types {type_name(low)} and {type_name(high)})")
        if high - low > 1_000_000:
            raise ExpressionError("memory budget exceeded")
        return list(range(low, high + 1))

    def _index(self, node: Node) -> Any:
        return fetch(self.value(node.parts[0]), self.value(node.parts[1]))

    def _optional_index(self, node: Node) -> Any:
        owner = self.value(node.parts[0])
        return None if owner is None else fetch(owner, self.value(node.parts[1]))

    def _cut(self, node: Node) -> Any:
        whole, low, high = (self.value(part) for part in node.parts)
        if not isinstance(whole, (str, list)):
            raise ExpressionError(f"cannot slice {type_name(whole)}")
        size = len(whole)
        low, high = (0 if low is None else low), (size if high is None else high)
        low, high = (low + size if low < 0 else low), (high + size if high < 0 else high)
        return whole[max(min(low, size), 0) : max(min(high, size), 0)]

    def _call(self, node: Node) -> Any:
        callee, *arguments = node.parts
        if callee is not None and callee.kind == "name" and self._is_predicate(callee.value):
            return self._with_predicate(callee.value, arguments)
        function = self.value(callee)
        if not callable(function):
            raise ExpressionError(f"{path_of(callee) if callee else '?'} is not callable")
        values = [self.value(argument) for argument in arguments]
        try:
            return function(*values)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError, re.error) as error:
            raise ExpressionError(str(error)) from None

    def _is_predicate(self, name: str) -> bool:
        return name in functions.PREDICATES and name not in self.environment

    def _with_predicate(self, name: str, arguments: list[Node | None]) -> Any:
        def per_element(node: Node | None) -> Callable[..., Any]:
            def predicate(element: Any, **named: Any) -> Any:
                return Evaluation(self.environment, {**self.element, "": element, **named}).value(node)

            return predicate

        collection, *rest = arguments
        values = [self.value(collection)]
        values += [per_element(one) if place == 0 else self.value(one) for place, one in enumerate(rest)]
        try:
            return functions.PREDICATES[name](*values)
        except (TypeError, ValueError) as error:
            raise ExpressionError(str(error)) from None

    def _unary(self, node: Node) -> Any:
        value = self.value(node.parts[0])
        if node.value == "!":
            if not isinstance(value, bool):
                raise ExpressionError(f"invalid operation: ! (mismatched type {type_name(value)})")
            return not value
        if not is_number(value):
            raise ExpressionError(f"invalid operation: {node.value} (mismatched type {type_name(value)})")
        return -value if node.value == "-" else value

    def _binary(self, node: Node) -> Any:
        operator, (left, right) = node.value, node.parts
        if operator in ("&&", "||"):
            first = self._truth(self.value(left), operator)
            if first is (operator == "||"):
                return first
            return self._truth(self.value(right), operator)
        return operate(operator, self.value(left), self.value(right))

    def _truth(self, value: Any, operator: str) -> bool:
        if not isinstance(value, bool):
            raise ExpressionError(f"invalid operation: {operator} (mismatched types {type_name(value)} and bool)")
        return value
