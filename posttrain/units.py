"""Numbers as people read them, and bounds on those that people give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from posttrain.errors import UserError


def duration(seconds: float | None) -> str:
    """`0.4 s`, `38 s`, `4 min 05 s`, `2 h 03 min`."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(value: float) -> str:
    """`950`, `41.0k`, `1.25M`"""
    for limit, unit, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:g}"


def is_port(name: str, value: int) -> None:
    """Raise UserError naming `name` where `value` is no port that can be listened on."""
    if not 1 <= value <= 65535:
        raise UserError("is no port", field=name, value=value, remedy="write a number up to 65535")


def quantity(text: Any, where: str) -> Decimal:
    """A Kubernetes quantity ("500m", "2Gi") as a number; UserError naming the field `where` for what is none."""
    from kubernetes.utils.quantity import parse_quantity  # 0.3 s

    try:
        value = parse_quantity(text)
    except (ValueError, ArithmeticError):
        value = Decimal("NaN")
    if not value.is_finite():
        raise UserError("is no quantity", field=where, value=text, remedy="write it as 2, 500m or 2Gi")
    if not 0 <= value < 1 << 63:
        raise UserError("is below zero" if value < 0 else "is too large", field=where, value=text)
    return value


def at_least(field: str, value: float, least: float) -> None:
    """UserError naming `field` where `value` is less, or no number."""
    if not value >= least:
        raise UserError(f"must be at least {least:g}", field=field, value=value)


def within(field: str, value: float, low: float, high: float) -> None:
    """UserError naming `field` where `value` is not from `low` to `high`, both of them included."""
    if not low <= value <= high:
        raise UserError(f"must lie in [{low:g}, {high:g}]", field=field, value=value)
