"""Computing a tree: the one evaluator of expressions and conditions.

`evaluate` computes expr-lang; `decide` computes a `when` clause, whose numbers are floats, whose
bare words are texts and whose quoted dates are times. Nothing is read but the given environment:
a mapping whose values are texts, numbers, lists, nested mappings and functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from posttrain.engine.expressions import functions
from posttrain.engine.expressions.dates import GoTime, read_quoted_time
from posttrain.engine.expressions.gotext import to_text
from posttrain.engine.expressions.grammar import ExpressionError, Node, parse_condition, parse_expression

Environment = Mapping[str, Any]


def evaluate(text: str, environment: Environment) -> Any:
    """The value of an expr-lang expression. Raises ExpressionError."""
    return _value(_Evaluation(environment), parse_expression(text))


def _value(evaluation: _Evaluation, tree: Node) -> Any:
    """The value of a whole tree. What Python makes of values without measure or sense is an ExpressionError, too."""
    try:
        return evaluation.value(tree)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise ExpressionError(str(error) or type(error).__name__) from None


def evaluate_bool(text: str, environment: Environment) -> bool:
    """The value of an expression that must be true or false. Raises ExpressionError."""
    tree = parse_expression(text)
    try:
        value = _value(_Evaluation(environment), tree)
    except ExpressionError as error:
        raise ExpressionError(f"unable to evaluate expression '{text}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"unable to cast expression result '{to_text(value)}' to bool")
    return value


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
        value = _value(_Condition({}), tree)
    except ExpressionError as error:
        raise ExpressionError(f"Failed to evaluate 'when' expresion '{when}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{when}'. Got {to_text(value)}")
    return value


def identifiers(text: str) -> list[str]:
    """Every name and dotted path that an expression mentions, as the controller looks for missing ones.

    Built-in functions are no names; a local name of `let` is one.
    """
    found: dict[str, None] = {}

    def visit(node: Node, called: bool = False) -> None:
        if node.kind == "name" and not (called and node.value in functions.BUILTINS):
            found.setdefault(node.value)
        if node.kind == "index" and (path := _path(node)):
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
            path = callee.value if callee.kind == "name" else _path(callee)
            if path:
                found.add(path)
        for part in node.parts:
            if part is not None:
                visit(part)

    visit(parse_expression(text))
    return found


def _path(node: Node) -> str | None:
    steps: list[str] = []
    while node.kind == "index" and node.parts[1] is not None and node.parts[0] is not None:
        key = node.parts[1]
        if key.kind != "literal" or not isinstance(key.value, str):
            return None
        steps.insert(0, key.value)
        node = node.parts[0]
    return ".".join([node.value, *steps]) if node.kind == "name" else None


class _Evaluation:
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
        inner = _Evaluation({**self.environment, str(node.value): value}, self.element)
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
        if not (_is_int(low) and _is_int(high)):
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
            raise ExpressionError(f"{_path(callee) if callee else '?'} is not callable")
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
                return _Evaluation(self.environment, {**self.element, "": element, **named}).value(node)

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
        if not _is_number(value):
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


def fetch(owner: Any, key: Any) -> Any:
    """`owner[key]`: nil for a missing key of a map, from the end for a negative place in a list."""
    if isinstance(owner, Mapping):
        return owner.get(key)
    if isinstance(owner, (list, str)) and _is_int(key):
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
    numbers = _is_number(left) and _is_number(right)
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
        case "%" if _is_int(left) and _is_int(right):
            if right == 0:
                raise ExpressionError("integer divide by zero")
            return int(math.fmod(left, right))
    raise ExpressionError(f"invalid operation: {operator} (mismatched types {type_name(left)} and {type_name(right)})")


def equal(left: Any, right: Any) -> bool:
    """Deep equality; a number equals only a number, true only true."""
    if _is_number(left) and _is_number(right):
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


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Condition(_Evaluation):
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
        if node.value != "!" and _is_number(value):
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
        if _is_number(left) and _is_number(right) and operator not in ("in", "=~", "!~"):
            return self._arithmetic(operator, left, right)
        stranger = left if not _is_number(left) else right
        if operator in (">", "<", ">=", "<=") and _is_number(left):
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
