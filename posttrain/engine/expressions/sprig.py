"""The sprig functions that Argo offers under `sprig.`, less `env` and `expandenv`, which it withholds.

sprig is lenient where expr-lang is strict: a text that is no number counts as 0.
"""

from __future__ import annotations

import base64
import hashlib
import math
import random
import re
import string
import textwrap
import uuid
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from posttrain.engine.expressions.dates import GoTime, parse_time
from posttrain.engine.expressions.functions import _from_json, affordable, pattern, repeated, to_json_text, type_of
from posttrain.engine.expressions.gotext import to_text


def to_int(value: Any) -> int:
    """`int`, `int64`, `atoi`: 0 for what is no number."""
    if isinstance(value, str):
        try:
            return int(value, 0) if re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[1-9]\d*|0)", value) else int(float(value))
        except (ValueError, OverflowError):
            return 0
    return int(value) if isinstance(value, (int, float)) else 0


def to_float(value: Any) -> float:
    """`float64`: 0 for what is no number."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else 0.0
    except ValueError:
        return 0.0


def empty(value: Any) -> bool:
    """Whether a value is nil, false, 0, or holds nothing."""
    return value is None or value is False or (not isinstance(value, bool) and not callable(value) and not value)


def _strings(values: Any) -> list[str]:
    if isinstance(values, list):
        return [to_text(one) for one in values if one is not None]
    return [to_text(values)]


def _words(text: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word for word in re.split(r"[\s_\-.]+", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", spaced)) if word]


def _camel(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[\s_\-]+", text))


def _truncate(size: int, text: str) -> str:
    return text[:size] if size >= 0 else text[size:]


def _substr(start: int, end: int, text: str) -> str:
    if start < 0:
        return text[:end]
    return text[start:] if end < 0 or end > len(text) else text[start:end]


def _round(value: Any, places: int, threshold: float = 0.5) -> float:
    scaled = to_float(value) * 10**places
    fraction = abs(scaled) - math.floor(abs(scaled))
    whole = math.floor(abs(scaled)) + (1 if fraction >= threshold else 0)
    return math.copysign(whole, scaled) / 10**places


def _divide(left: Any, right: Any) -> int:
    divisor = to_int(right)
    if divisor == 0:
        raise ValueError("runtime error: integer divide by zero")
    return int(to_int(left) / divisor)


def _modulo(left: Any, right: Any) -> int:
    divisor = to_int(right)
    if divisor == 0:
        raise ValueError("runtime error: integer divide by zero")
    return int(math.fmod(to_int(left), divisor))


def _until_step(start: int, stop: int, step: int) -> list[int]:
    if step == 0 or (stop - start) * step < 0:
        return []
    affordable((stop - start) // step)
    return list(range(start, stop, step))


def _dict(*pairs: Any) -> dict[str, Any]:
    keys, values = pairs[::2], [*pairs[1::2], ""]
    return {to_text(key): value for key, value in zip(keys, values, strict=False)}


def _set(owner: Any, key: str, value: Any) -> dict[str, Any]:
    return {**owner, key: value}


def _merge(target: Any, *sources: Any) -> dict[str, Any]:
    merged = dict(target)
    for source in sources:
        for key, value in source.items():
            if isinstance(merged.get(key), Mapping) and isinstance(value, Mapping):
                merged[key] = _merge(merged[key], value)
            elif key not in merged or empty(merged[key]):
                merged[key] = value
    return merged


def _dig(*path: Any) -> Any:
    *keys, default, owner = path
    for key in keys:
        if not isinstance(owner, Mapping) or key not in owner:
            return default
        owner = owner[key]
    return owner


def _unique(values: list[Any]) -> list[Any]:
    return [one for place, one in enumerate(values) if one not in values[:place]]


def _go_template(replacement: str) -> str:
    return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: f"\\g<{m[1] or m[2]}>", replacement.replace("\\", "\\\\"))


def _find_all(rule: str, text: str, limit: int) -> list[str]:
    found = [one[0] for one in pattern(rule).finditer(text)]
    return found if limit < 0 else found[:limit]


def _split_map(separator: str, text: str) -> dict[str, str]:
    return {f"_{place}": part for place, part in enumerate(text.split(separator))}


def _indent(width: int, text: str) -> str:
    return textwrap.indent(text, repeated(" ", width), lambda line: True)


def _abbreviate(width: int, text: str) -> str:
    return text if width < 4 or len(text) <= width else text[: width - 3] + "..."


def _date(layout: str, moment: Any) -> str:
    return _moment(moment).format(layout)


def _moment(value: Any) -> GoTime:
    if isinstance(value, GoTime):
        return value
    if isinstance(value, (int, float)):
        return GoTime(datetime.fromtimestamp(value, UTC))
    return parse_time(str(value))


_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def _version(text: str) -> tuple[tuple[int, int, int], tuple[Any, ...]]:
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"Invalid Semantic Version: {text}")
    numbers = (int(found[1]), int(found[2] or 0), int(found[3] or 0))
    before = found[4].split(".") if found[4] else []
    order = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in before)
    return numbers, (0, *order) if before else (1,)


def _semver_compare(constraint: str, version: str) -> bool:
    actual = _version(version)
    return any(
        all(_satisfies(actual, one) for one in re.findall(r"[^\s,]+", re.sub(r"([<>=!~^]+)\s+", r"\1", alternative)))
        for alternative in constraint.split("||")
    )


def _satisfies(actual: tuple[tuple[int, int, int], tuple[Any, ...]], constraint: str) -> bool:
    found = re.fullmatch(r"(>=|=>|<=|=<|!=|=|>|<|~>|~|\^)?(.*)", constraint)
    operator, text = (found[1] or "=", found[2]) if found else ("=", constraint)
    parts = text.lstrip("v").split(".")
    if any(part in ("x", "X", "*") for part in parts) or (operator == "=" and len(parts) < 3 and "-" not in text):
        fixed = [int(part) for part in parts if part.isdigit()]
        return (list(actual[0][: len(fixed)]) == fixed) is not (operator == "!=")
    wanted = _version(text)
    match operator:
        case "=":
            return actual == wanted
        case "!=":
            return actual != wanted
        case ">":
            return actual > wanted
        case "<":
            return actual < wanted
        case ">=" | "=>":
            return actual >= wanted
        case "<=" | "=<":
            return actual <= wanted
        case "~" | "~>":
            return (
                actual >= wanted
                and actual[0][: 1 if len(parts) == 1 else 2] == wanted[0][: 1 if len(parts) == 1 else 2]
            )
    leading = next((place for place, number in enumerate(wanted[0]) if number), 2)
    return actual >= wanted and actual[0][: leading + 1] == wanted[0][: leading + 1]


def _ternary(yes: Any, no: Any, test: bool) -> Any:
    return yes if test else no


def _fail(message: str) -> Any:
    raise ValueError(message)


def _url(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    user, _, host = parts.netloc.rpartition("@")
    whole = {"scheme": parts.scheme, "host": host, "path": parts.path, "query": parts.query, "fragment": parts.fragment}
    return whole | {"hostname": parts.hostname or "", "opaque": "", "userinfo": user}


def _sequence(first: int, last: int) -> range:
    affordable(last - first)
    return range(first, last + 1)


def _random(letters: str) -> Callable[[int], str]:
    return lambda count: "".join(random.choices(letters, k=affordable(count)))


SPRIG: dict[str, Callable[..., Any]] = {
    "trim": lambda text: text.strip(),
    "trimAll": lambda cut, text: text.strip(cut),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trimPrefix": lambda prefix, text: text.removeprefix(prefix),
    "upper": lambda text: text.upper(),
    "lower": lambda text: text.lower(),
    "title": lambda text: re.sub(r"(^|[\s\-_.,;:!?'\"(])(\w)", lambda m: m[1] + m[2].upper(), text),
    "untitle": lambda text: re.sub(r"\b\w", lambda m: m[0].lower(), text),
    "swapcase": lambda text: text.swapcase(),
    "substr": _substr,
    "trunc": _truncate,
    "abbrev": _abbreviate,
    "replace": lambda old, new, text: text.replace(old, new),
    "repeat": lambda count, text: repeated(text, count),
    "nospace": lambda text: re.sub(r"\s", "", text),
    "initials": lambda text: "".join(word[0] for word in text.split()),
    "snakecase": lambda text: "_".join(_words(text)).lower(),
    "kebabcase": lambda text: "-".join(_words(text)).lower(),
    "camelcase": _camel,
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda part, text: text.startswith(part),
    "hasSuffix": lambda part, text: text.endswith(part),
    "quote": lambda *values: " ".join(
        '"' + to_text(one).replace("\\", "\\\\").replace('"', '\\"') + '"' for one in values
    ),
    "squote": lambda *values: " ".join(f"'{to_text(one)}'" for one in values),
    "cat": lambda *values: " ".join(to_text(one) for one in values if one is not None),
    "indent": _indent,
    "nindent": lambda width, text: "\n" + _indent(width, text),
    "wrap": lambda width, text: "\n".join(textwrap.wrap(text, width)),
    "plural": lambda one, many, count: one if count == 1 else many,
    "join": lambda glue, values: glue.join(_strings(values)),
    "sortAlpha": lambda values: sorted(_strings(values)),
    "splitList": lambda separator, text: text.split(separator),
    "split": _split_map,
    "toStrings": _strings,
    "toString": to_text,
    "regexMatch": lambda rule, text: pattern(rule).search(text) is not None,
    "regexFind": lambda rule, text: found[0] if (found := pattern(rule).search(text)) else "",
    "regexFindAll": _find_all,
    "regexReplaceAll": lambda rule, text, by: pattern(rule).sub(_go_template(by), text),
    "regexReplaceAllLiteral": lambda rule, text, by: pattern(rule).sub(lambda _: by, text),
    "regexSplit": lambda rule, text, limit: pattern(rule).split(text, maxsplit=max(limit - 1, 0)),
    "regexQuoteMeta": lambda text: re.escape(text),
    "int": to_int,
    "int64": to_int,
    "atoi": to_int,
    "float64": to_float,
    "toDecimal": lambda value: int(to_text(value), 8),
    "add": lambda *values: sum(map(to_int, values)),
    "add1": lambda value: to_int(value) + 1,
    "sub": lambda left, right: to_int(left) - to_int(right),
    "mul": lambda *values: math.prod(map(to_int, values)),
    "div": _divide,
    "mod": _modulo,
    "addf": lambda *values: sum(map(to_float, values)),
    "subf": lambda first, *rest: to_float(first) - sum(map(to_float, rest)),
    "mulf": lambda *values: math.prod(map(to_float, values)),
    "divf": lambda left, right: to_float(left) / to_float(right),
    "max": lambda *values: max(map(to_int, values)),
    "min": lambda *values: min(map(to_int, values)),
    "maxf": lambda *values: max(map(to_float, values)),
    "minf": lambda *values: min(map(to_float, values)),
    "floor": lambda value: float(math.floor(to_float(value))),
    "ceil": lambda value: float(math.ceil(to_float(value))),
    "round": _round,
    "until": lambda stop: _until_step(0, stop, 1 if stop >= 0 else -1),
    "untilStep": _until_step,
    "seq": lambda *bounds: " ".join(map(str, _sequence(1 if len(bounds) == 1 else bounds[0], bounds[-1]))),
    "list": lambda *values: list(values),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "rest": lambda values: values[1:],
    "initial": lambda values: values[:-1],
    "append": lambda values, one: [*values, one],
    "prepend": lambda values, one: [one, *values],
    "concat": lambda *lists: [one for values in lists for one in values],
    "reverse": lambda values: values[::-1],
    "uniq": _unique,
    "without": lambda values, *gone: [one for one in values if one not in gone],
    "has": lambda one, values: one in values,
    "compact": lambda values: [one for one in values if not empty(one)],
    "slice": lambda values, *bounds: values[slice(*bounds)],
    "chunk": lambda size, values: [values[at : at + size] for at in range(0, len(values), size)],
    "dict": _dict,
    "get": lambda owner, key: owner.get(key, ""),
    "set": _set,
    "unset": lambda owner, key: {k: v for k, v in owner.items() if k != key},
    "hasKey": lambda owner, key: key in owner,
    "keys": lambda *owners: [key for owner in owners for key in owner],
    "values": lambda owner: list(owner.values()),
    "pick": lambda owner, *keys: {key: owner[key] for key in keys if key in owner},
    "omit": lambda owner, *keys: {key: value for key, value in owner.items() if key not in keys},
    "pluck": lambda key, *owners: [owner[key] for owner in owners if key in owner],
    "dig": _dig,
    "merge": _merge,
    "default": lambda default, value=None: default if empty(value) else value,
    "empty": empty,
    "coalesce": lambda *values: next((one for one in values if not empty(one)), None),
    "all": lambda *values: not any(map(empty, values)),
    "any": lambda *values: not all(map(empty, values)),
    "ternary": _ternary,
    "fail": _fail,
    "toJson": to_json_text,
    "toRawJson": to_json_text,
    "fromJson": lambda text: _from_json(text),
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "b64dec": lambda text: base64.b64decode(text).decode(),
    "b32enc": lambda text: base64.b32encode(text.encode()).decode(),
    "b32dec": lambda text: base64.b32decode(text).decode(),
    "sha1sum": lambda text: hashlib.sha1(text.encode()).hexdigest(),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "sha512sum": lambda text: hashlib.sha512(text.encode()).hexdigest(),
    "adler32sum": lambda text: str(zlib.adler32(text.encode())),
    "uuidv4": lambda: str(uuid.uuid4()),
    "randAlpha": _random(string.ascii_letters),
    "randAlphaNum": _random(string.ascii_letters + string.digits),
    "randNumeric": _random(string.digits),
    "now": lambda: GoTime(datetime.now(UTC)),
    "date": _date,
    "toDate": lambda layout, text: parse_time(text),
    "unixEpoch": lambda moment: str(int(_moment(moment).moment.timestamp())),
    "htmlDate": lambda moment: _date("2006-01-02", moment),
    "semver": lambda text: dict(zip(("Major", "Minor", "Patch"), _version(text)[0], strict=True)),
    "semverCompare": _semver_compare,
    "urlParse": _url,
    "base": lambda path: path.rstrip("/").rpartition("/")[2] or ("/" if path.startswith("/") else "."),
    "dir": lambda path: path.rpartition("/")[0] or ("/" if path.startswith("/") else "."),
    "ext": lambda path: found[0] if (found := re.search(r"\.[^./]*$", path)) else "",
    "clean": lambda path: re.sub(r"/+", "/", path),
    "kindOf": lambda value: {"array": "slice", "nil": "invalid"}.get(kind := _kind(value), kind),
    "typeOf": lambda value: _kind(value),
}


def _kind(value: Any) -> str:
    return {"float": "float64", "array": "slice"}.get(type_of(value), type_of(value))
