"""How Go writes values: JSON, `%v` and quoted text, which the controller's results show.

Values are Python's: None, bool, int, float, str, list, dict (keys are texts). A number read from
JSON may be kept as it was written (`Number`), because a list of results keeps `2.50` as `2.50`.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any


class Number(float):
    """A number that remembers its text."""

    text: str

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


class GoJSONError(ValueError):
    """A text that is no JSON; the message is that of Go's decoder."""


def read_json(text: str, *, keep_numbers: bool = False) -> Any:
    """Decode `text`. Raises GoJSONError with Go's wording."""
    hooks: dict[str, Any] = {"parse_float": Number, "parse_int": Number} if keep_numbers else {}
    try:
        return json.loads(text, parse_constant=_no_constant, **hooks)
    except json.JSONDecodeError as error:
        raise GoJSONError(_decoder_message(text, error)) from None
    except RecursionError:
        raise GoJSONError("exceeded max depth") from None


def _no_constant(name: str) -> Any:
    raise GoJSONError(f"invalid character '{name[0]}' looking for beginning of value")


def _decoder_message(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].lstrip()
    if not rest or (
        error.msg.startswith(("Unterminated string", "Expecting ',' delimiter")) and error.pos >= len(text)
    ):
        return "unexpected end of JSON input"
    if error.msg == "Extra data":
        return f"invalid character '{rest[0]}' after top-level value"
    return f"invalid character '{rest[0]}' looking for beginning of value"


def to_json(value: Any, *, escape_html: bool = True, sort_keys: bool = True) -> str:
    """Compact JSON as Go's Marshal writes it: sorted keys, `<>&` escaped, its own float format."""
    text = _json(value, sort_keys)
    if escape_html:
        text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return text


def _json(value: Any, sort_keys: bool) -> str:
    if isinstance(value, Number):
        return value.text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"json: unsupported value: {format_float(value)}")
        return format_float(value, json_form=True)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_json(one, sort_keys) for one in value) + "]"
    if isinstance(value, dict):
        keys = sorted(value) if sort_keys else list(value)
        return "{" + ",".join(f"{_json(str(k), sort_keys)}:{_json(value[k], sort_keys)}" for k in keys) + "}"
    raise ValueError(f"json: unsupported type: {type(value).__name__}")


def format_float(value: float, *, json_form: bool = False) -> str:
    """Shortest text of a float: Go's `%v` (an exponent from 1e+06), or as Marshal writes it (from 1e+21)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return sign + "0"
    digits, exponent = _digits(value)
    lowest, limit = (-6, 21) if json_form else (-4, 6)
    if lowest <= exponent < limit:
        return sign + _decimal(digits, exponent)
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    power = str(abs(exponent)) if json_form and exponent < 0 else f"{abs(exponent):02d}"
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{power}"


def _digits(value: float) -> tuple[str, int]:
    """Shortest significant digits and the decimal exponent of the first of them."""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0") or "0"
    shift = int(exponent or 0) + (len(whole) if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0"))))
    return digits.rstrip("0") or "0", shift - 1


def _decimal(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]


def plain_number(value: float | int) -> str:
    """A number without an exponent, as a parameter's unquoted value is stored."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return format_float(value)
    digits, exponent = _digits(value)
    return ("-" if value < 0 else "") + ("0" if value == 0 else _decimal(digits, exponent))


def to_text(value: Any) -> str:
    """`%v`: `<nil>`, `[1 two true]`, `map[a:1]`, floats with an exponent from 1e+06."""
    if value is None:
        return "<nil>"
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(to_text(one) for one in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{to_text(value[k])}" for k in sorted(value)) + "]"
    return str(value)


_SPOILS_JSON = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]|[\U00010000-\U0010ffff]")


def spoils_json(text: str) -> bool:
    """Whether Go's strconv.Quote of `text` holds an escape that JSON does not know.

    The controller pastes quoted values into JSON, so such a value breaks the substitution.
    """
    for found in _SPOILS_JSON.finditer(text):
        if found[0] < "\U00010000" or unicodedata.category(found[0])[0] not in "LMNPS":
            return True
    return False
