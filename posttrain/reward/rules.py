"""When two texts or two numbers are the same. Pure and quick; never raises for any text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from posttrain.errors import UserError

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?:\s*/\s*\d+)?|[-+]?\.\d+")


def same_text(answer: str, given: str, *, ignore_case: bool) -> bool:
    """Blanks collapsed."""
    left, right = " ".join(answer.split()), " ".join(given.split())
    return left.casefold() == right.casefold() if ignore_case else left == right


def number(text: str) -> Fraction | None:
    """The number that `text` as a whole spells ("1,234.5", "-3/4", "1e3"), else None."""
    if not NUMBER.fullmatch(text.strip()):
        return None
    try:
        return Fraction(text.replace(",", "").replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        # Fraction reads "3/4" and "1e3" but no mixture of the two.
        return None


def same_number(answer: str, given: str, tolerance: float) -> bool:
    """Equal, or apart by at most `tolerance`, relative or absolute."""
    expected, found = number(answer), number(given)
    if expected is None or found is None:
        return False
    return expected == found or (tolerance > 0 and math.isclose(expected, found, rel_tol=tolerance, abs_tol=tolerance))


def tolerance_of(details: Mapping[str, Any]) -> float:
    """`metadata.tolerance`. Raises UserError for what is none."""
    value = details.get("tolerance", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError("is no tolerance", field="metadata.tolerance", value=value, remedy="write a number from 0 up")
    return float(value)
