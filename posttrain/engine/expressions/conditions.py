"""Computing a `when` clause, whose numbers are floats, whose bare words are texts and whose quoted dates are times."""

from __future__ import annotations

import math
import re
from typing import Any

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.dates import read_quoted_time
from posttrain.engine.expressions.evaluate import Evaluation, value_of
from posttrain.engine.expressions.gotext import to_text
from posttrain.engine.expressions.grammar import ExpressionError, Node, parse_condition
from posttrain.engine.expressions.operators import equal, is_number, operate


def decide(when: str) -> bool:
    """Whether a `when` clause, with everything substituted, holds. Raises ExpressionError."""
    if when == "":
        return True
    try:
        tree = parse_condition(when)
    except ExpressionError as error:
        hint = ' (hint: try wrapping the affected expression in quotes ("))' if "Invalid token" in str(error) else ""
        raise ExpressionError(f"Invalid 'when' expression '{when}': {error}{hint}") from None
    try:
        value = value_of(_Condition({}), tree)
    except ExpressionError as error:
        raise ExpressionError(f"Failed to evaluate 'when' expresion '{when}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{when}'. Got {to_text(value)}")
    return value


class _Condition(Evaluation):
    """govaluate's rules: floats, texts, booleans and times, and nothing else."""

    def _nothing(self, node: Node) -> Any:
        return None

    def _quoted(self, node: Node) -> Any:
        moment = read_quoted_time(node.value)
        return node.value if moment is None else moment

    def _unary(self, node: Node) -> Any:
        value = self.value(node.parts[0])
        if node.value == "!" and isinstance(value, bool):
            return not value
        if node.value != "!" and is_number(value):
            return -value if node.value == "-" else float(~int(value))
        kind = "a bool" if node.value == "!" else "a number"
        raise ExpressionError(
            f"Value '{to_text(value)}' cannot be used with the prefix '{node.value}', it is not {kind}"
        )

    def _ternary(self, node: Node) -> Any:
        condition = self.value(node.parts[0])
        if not isinstance(condition, bool):
            raise ExpressionError(
                f"Value '{to_text(condition)}' cannot be used with the ternary operator '?', it is not a bool"
            )
        return self.value(node.parts[1] if condition else node.parts[2])

    def _truth(self, value: Any, operator: str) -> bool:
        if not isinstance(value, bool):
            raise ExpressionError(
                f"Value '{to_text(value)}' cannot be used with the logical operator '{operator}', it is not a bool"
            )
        return value

    def _binary(self, node: Node) -> Any:
        operator = node.value.lower()
        if operator in ("&&", "||"):
            return super()._binary(node)
        left, right = self.value(node.parts[0]), self.value(node.parts[1])
        match operator:
            case "==" | "!=":
                return equal(left, right) is (operator == "==")
            case "in" if isinstance(right, list):
                return any(equal(left, one) for one in right)
            case "=~" | "!~" if isinstance(left, str) and isinstance(right, str):
                try:
                    return (re.search(functions.pattern(right), left) is not None) is (operator == "=~")
                except re.error as error:
                    raise ExpressionError(f"Unable to compile regexp pattern '{right}': {error}") from None
            case "+" if isinstance(left, str) or isinstance(right, str):
                return to_text(left) + to_text(right)
            case "<" | ">" | "<=" | ">=" if isinstance(left, str) and isinstance(right, str):
                return operate(operator, left, right)
        if is_number(left) and is_number(right) and operator not in ("in", "=~", "!~"):
            return self._arithmetic(operator, left, right)
        stranger = left if not is_number(left) else right
        if operator in (">", "<", ">=", "<=") and is_number(left):
            stranger = left
        word = "comparator" if operator in ("<", ">", "<=", ">=", "in", "=~", "!~") else "modifier"
        raise ExpressionError(
            f"Value '{to_text(stranger)}' cannot be used with the {word} '{operator}', it is not a number"
        )

    def _arithmetic(self, operator: str, left: float, right: float) -> Any:
        if operator in ("|", "&", "^", "<<", ">>"):
            first, second = int(left), int(right)
            bits = {"|": first | second, "&": first & second, "^": first ^ second}
            if operator in bits:
                return float(bits[operator])
            if not 0 <= second < 64:
                return 0.0
            return float(first << second if operator == "<<" else first >> second)
        if operator == "%":
            return math.fmod(left, right) if right else math.nan
        return operate(operator, left, right)
