"""The functions of expr-lang, by the names that expressions call them.

`BUILTINS` take values; `PREDICATES` take a list and a rule for its elements. A function that is
given something it cannot use raises ValueError or TypeError, which the evaluator reports.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from posttrain.engine.expressions.dates import GoTime, duration, parse_time
from posttrain.engine.expressions.gotext import GoJSONError, Number, read_json, to_json, to_text


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    """A Go regular expression as Python's: named groups, `\\z`, classes by name."""
    python = text.replace("\\z", "\\Z").replace("(?P<", "(?P<")
    for name, letters in (
        ("alpha", "A-Za-z"),
        ("digit", "0-9"),
        ("alnum", "0-9A-Za-z"),
        ("space", r"\s"),
        ("word", r"\w"),
    ):
        python = python.replace(f"[:{name}:]", letters)
    return re.compile(python, re.ASCII)


MOST = 1_000_000  # letters or elements that one call makes, as expr-lang's memory budget


def affordable(count: int) -> int:
    """The count, unless it is more than a call may make (ValueError)."""
    if count > MOST:
        raise ValueError("memory budget exceeded")
    return count


def repeated(text: str, times: int) -> str:
    """The text so many times."""
    affordable(len(text) * times)
    return text * times


def type_of(value: Any) -> str:
    """expr-lang's `type`: nil, bool, int, float, string, array, map, time, func."""
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    if value is None:
        return "nil"
    if isinstance(value, Mapping):
        return "map"
    return "time.Time" if isinstance(value, GoTime) else "func" if callable(value) else type(value).__name__


def to_int(value: Any) -> int:
    """`int`: also from text. Raises ValueError with the text at fault."""
    if isinstance(value, str):
        try:
            return int(value, 10) if re.fullmatch(r"[+-]?\d+", value) else _no_int(value)
        except ValueError:
            return _no_int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value)
    return _no_int(value)


def _no_int(value: Any) -> int:
    raise ValueError(f"invalid operation: int({to_text(value)})")


def to_float(value: Any) -> float:
    """`float`: also from text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"invalid operation: float({to_text(value)})")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"invalid operation: float({value})") from None


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"invalid argument for number (type {type_of(value)})")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"invalid argument (type {type_of(value)}) where a string is wanted")
    return value


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"invalid argument (type {type_of(value)}) where an array is wanted")
    return value


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat += _numbers(tuple(value)) if isinstance(value, list) else [_number(value)]
    return flat


def _mean(*values: Any) -> float:
    numbers = _numbers(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _median(*values: Any) -> float:
    ordered = sorted(_numbers(values))
    if not ordered:
        return 0.0
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _sorted(values: Any, order: str = "asc") -> list[Any]:
    if order not in ("asc", "desc"):
        raise ValueError(f"invalid order {order}, expected asc or desc")
    return sorted(_items(values), reverse=order == "desc")


def _unique(values: Any) -> list[Any]:
    seen: dict[str, Any] = {}
    for one in _items(values):
        seen.setdefault(f"{type_of(one)}:{to_text(one)}", one)
    return list(seen.values())


def _flatten(values: Any) -> list[Any]:
    return [one for value in _items(values) for one in (_flatten(value) if isinstance(value, list) else [value])]


def _get(owner: Any, key: Any) -> Any:
    if isinstance(owner, Mapping):
        return owner.get(key)
    return owner[key] if isinstance(owner, list) and -len(owner) <= key < len(owner) else None


def _from_json(text: Any) -> Any:
    try:
        return plain(read_json(_text(text)))
    except GoJSONError as error:
        raise ValueError(str(error)) from None


def plain(value: Any) -> Any:
    """Decoded JSON as Go holds it: every number is a float."""
    if isinstance(value, Number) or (isinstance(value, int) and not isinstance(value, bool)):
        return float(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _round(value: Any) -> float:
    number = _number(value)
    return math.copysign(math.floor(abs(number) + 0.5), number)


def _size(value: Any) -> int:
    if not isinstance(value, (str, list, Mapping)):
        raise ValueError(f"invalid argument for len (type {type_of(value)})")
    return len(value)


def _date(text: Any, layout: str | None = None, zone: str | None = None) -> GoTime:
    moment = parse_time(_text(text))
    return GoTime(moment.moment.replace(tzinfo=ZoneInfo(zone))) if zone else moment


def operate_on_time(operator: str, left: Any, right: Any) -> Any:
    """Differences, sums and comparisons of times; a duration is a number of nanoseconds."""
    if isinstance(left, GoTime) and isinstance(right, GoTime):
        if operator == "-":
            return int((left.moment - right.moment).total_seconds() * 1e9)
        tests = {"<": left.moment < right.moment, ">": left.moment > right.moment}
        tests |= {"<=": left.moment <= right.moment, ">=": left.moment >= right.moment}
        if operator in tests:
            return tests[operator]
    if isinstance(left, GoTime) and operator in ("+", "-") and isinstance(right, (int, float)):
        step = timedelta(microseconds=right / 1000)
        return GoTime(left.moment + step if operator == "+" else left.moment - step)
    raise ValueError(f"invalid operation: {operator} (mismatched types {type_of(left)} and {type_of(right)})")


BUILTINS: dict[str, Callable[..., Any]] = {
    "len": _size,
    "type": type_of,
    "abs": lambda value: abs(_number(value)),
    "ceil": lambda value: float(math.ceil(_number(value))),
    "floor": lambda value: float(math.floor(_number(value))),
    "round": _round,
    "int": to_int,
    "float": to_float,
    "string": to_text,
    "max": lambda *values: max(_numbers(values)),
    "min": lambda *values: min(_numbers(values)),
    "mean": _mean,
    "median": _median,
    "trim": lambda text, cut=None: _text(text).strip(cut),
    "trimPrefix": lambda text, prefix=" ": _text(text).removeprefix(prefix),
    "trimSuffix": lambda text, suffix=" ": _text(text).removesuffix(suffix),
    "upper": lambda text: _text(text).upper(),
    "lower": lambda text: _text(text).lower(),
    "split": lambda text, by, limit=-1: _text(text).split(by, limit - 1 if limit > 0 else -1) if by else list(text),
    "splitAfter": lambda text, by: [one for one in re.split(f"(?<={re.escape(by)})", _text(text))],
    "replace": lambda text, old, new, limit=-1: _text(text).replace(old, new, limit),
    "repeat": lambda text, times: repeated(_text(text), times),
    "join": lambda values, glue="": glue.join(_text(one) for one in _items(values)),
    "indexOf": lambda text, part: _text(text).find(part),
    "lastIndexOf": lambda text, part: _text(text).rfind(part),
    "hasPrefix": lambda text, part: _text(text).startswith(part),
    "hasSuffix": lambda text, part: _text(text).endswith(part),
    "toJSON": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    "fromJSON": _from_json,
    "toBase64": lambda text: base64.b64encode(_text(text).encode()).decode(),
    "fromBase64": lambda text: base64.b64decode(_text(text), validate=True).decode(),
    "now": lambda: GoTime(datetime.now(UTC)),
    "duration": lambda text: int(duration(_text(text)) * 1e9),
    "date": _date,
    "first": lambda values: values[0] if _items(values) else None,
    "last": lambda values: values[-1] if _items(values) else None,
    "get": _get,
    "take": lambda values, count: _items(values)[:count],
    "keys": lambda owner: list(owner.keys()),
    "values": lambda owner: list(owner.values()),
    "toPairs": lambda owner: [[key, value] for key, value in owner.items()],
    "fromPairs": lambda pairs: {to_text(key): value for key, value in pairs},
    "reverse": lambda values: _items(values)[::-1],
    "uniq": _unique,
    "concat": lambda *lists: [one for values in lists for one in _items(values)],
    "flatten": _flatten,
    "sort": _sorted,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "bitshl": lambda a, b: a << b if b < 64 else 0,
    "bitshr": lambda a, b: a >> b,
}


def _holds(rule: Callable[..., Any], element: Any, **named: Any) -> bool:
    answer = rule(element, **named)
    if not isinstance(answer, bool):
        raise ValueError(f"predicate should return boolean (got {type_of(answer)})")
    return answer


def _find(values: list[Any], rule: Callable[..., Any], last: bool, place: bool) -> Any:
    order = range(len(values) - 1, -1, -1) if last else range(len(values))
    for index in order:
        if _holds(rule, values[index]):
            return index if place else values[index]
    return -1 if place else None


def _group(values: Any, rule: Callable[..., Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for one in _items(values):
        groups.setdefault(to_text(rule(one)), []).append(one)
    return groups


_NOTHING = object()


def _reduce(values: Any, rule: Callable[..., Any], start: Any = _NOTHING) -> Any:
    rest = list(_items(values))
    if start is _NOTHING:
        if not rest:
            raise ValueError("reduce of empty array with no initial value")
        start = rest.pop(0)
    for index, one in enumerate(rest):
        start = rule(one, acc=start, index=index)
    return start


PREDICATES: dict[str, Callable[..., Any]] = {
    "all": lambda values, rule: all(_holds(rule, one) for one in _items(values)),
    "none": lambda values, rule: not any(_holds(rule, one) for one in _items(values)),
    "any": lambda values, rule: any(_holds(rule, one) for one in _items(values)),
    "one": lambda values, rule: sum(_holds(rule, one) for one in _items(values)) == 1,
    "filter": lambda values, rule: [one for one in _items(values) if _holds(rule, one)],
    "map": lambda values, rule: [rule(one, index=index) for index, one in enumerate(_items(values))],
    "count": lambda values, rule=None: sum(_holds(rule, one) if rule else one is True for one in _items(values)),
    "sum": lambda values, rule=None: sum(_number(rule(one) if rule else one) for one in _items(values)),
    "find": lambda values, rule: _find(_items(values), rule, last=False, place=False),
    "findIndex": lambda values, rule: _find(_items(values), rule, last=False, place=True),
    "findLast": lambda values, rule: _find(_items(values), rule, last=True, place=False),
    "findLastIndex": lambda values, rule: _find(_items(values), rule, last=True, place=True),
    "groupBy": _group,
    "sortBy": lambda values, rule, order="asc": sorted(_items(values), key=rule, reverse=order == "desc"),
    "reduce": _reduce,
}


def _deny_call(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise ValueError(f"{name} wants a list and a rule")

    return refuse


BUILTINS |= {name: _deny_call(name) for name in PREDICATES}


def jsonpath(document: Any, path: Any) -> Any:
    """Argo's `jsonpath`: the value at `path`, a list where the path is a slice or a wildcard. Raises ValueError."""
    found = [_from_json(document)]
    several = False
    steps = re.findall(
        r"\.\.|\.?([\w$-]+)|\[\s*(-?\d*:?-?\d*|\*|'[^']*'|\"[^\"]*\")\s*\]|(\*)", _text(path).removeprefix("$")
    )
    for name, inside, star in steps:
        step = name or star or inside.strip("'\"")
        several = several or step == "*" or bool(re.fullmatch(r"-?\d*:-?\d*", step))
        found = [one for value in found for one in _step(value, step)]
    if several:
        return found
    if not found:
        raise ValueError(f"unknown key {path}")
    return found[0]


def _step(value: Any, step: str) -> list[Any]:
    if step == "*":
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if isinstance(value, list) and re.fullmatch(r"-?\d*:-?\d*", step):
        low, _, high = step.partition(":")
        return value[int(low) if low else None : int(high) if high else None]
    if isinstance(value, list) and re.fullmatch(r"-?\d+", step):
        return [value[int(step)]] if -len(value) <= int(step) < len(value) else []
    return [value[step]] if isinstance(value, dict) and step in value else []


def to_json_text(value: Any) -> str:
    """Argo's `toJson`: compact, `<>&` escaped."""
    return to_json(dict(value) if isinstance(value, Mapping) else value)
