"""Times as expr-lang, govaluate and sprig see them, and Go's layouts for writing them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_LAYOUT = re.compile(
    r"January|Jan|Monday|Mon|2006|\.000000000|\.000000|\.000|Z07:00|-07:00|-0700|MST|PM|pm|01|02|03|04|05|06|15|_2|1|2|3"
)
_FORMATS: dict[str, str] = {
    "January": "%B", "Jan": "%b", "Monday": "%A", "Mon": "%a", "2006": "%Y", "06": "%y", "01": "%m", "02": "%d",
    "03": "%I", "04": "%M", "05": "%S", "15": "%H", "PM": "%p", "MST": "%Z", "-0700": "%z",
}  # fmt: skip


class GoTime:
    """A moment with the methods of Go's time.Time that expressions call."""

    def __init__(self, moment: datetime):
        self.moment = moment

    def method(self, name: str) -> Callable[..., Any]:
        found = _METHODS.get(name)
        if found is None:
            raise ValueError(f"type time.Time has no method {name}")
        return lambda *arguments: found(self, *arguments)

    def format(self, layout: str) -> str:
        """The time in Go's layout, such as `2006-01-02T15:04:05Z07:00`."""
        return _LAYOUT.sub(lambda found: self._part(found[0]), layout)

    def _part(self, part: str) -> str:
        if part in ("Z07:00", "-07:00"):
            shown = self.moment.strftime("%z")
            return "Z" if part[0] == "Z" and shown == "+0000" else f"{shown[:3]}:{shown[3:]}"
        if part.startswith("."):
            return "." + f"{self.moment.microsecond:06d}000"[: len(part) - 1]
        plain = {"1": self.moment.month, "2": self.moment.day, "3": int(self.moment.strftime("%I"))}
        if part in plain:
            return str(plain[part])
        return f"{self.moment.day:2d}" if part == "_2" else self.moment.strftime(_FORMATS.get(part, part))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GoTime) and self.moment == other.moment

    def __hash__(self) -> int:
        return hash(self.moment)

    def __str__(self) -> str:
        return self.format("2006-01-02 15:04:05 -0700 MST")


_METHODS: dict[str, Callable[..., Any]] = {
    "Unix": lambda t: int(t.moment.timestamp()),
    "UnixMilli": lambda t: int(t.moment.timestamp() * 1000),
    "UnixNano": lambda t: int(t.moment.timestamp()) * 10**9 + t.moment.microsecond * 1000,
    "Year": lambda t: t.moment.year,
    "Month": lambda t: t.moment.month,
    "Day": lambda t: t.moment.day,
    "Hour": lambda t: t.moment.hour,
    "Minute": lambda t: t.moment.minute,
    "Second": lambda t: t.moment.second,
    "YearDay": lambda t: t.moment.timetuple().tm_yday,
    "Weekday": lambda t: t.moment.strftime("%A"),
    "Format": lambda t, layout: t.format(layout),
    "UTC": lambda t: GoTime(t.moment.astimezone(UTC)),
    "Before": lambda t, other: t.moment < other.moment,
    "After": lambda t, other: t.moment > other.moment,
    "Equal": lambda t, other: t.moment == other.moment,
    "String": str,
}


def parse_time(text: str) -> GoTime:
    """A time in RFC 3339 or one of the plain forms that expr-lang's `date` reads. Raises ValueError."""
    shapes = (None, "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%a, %d %b %Y %H:%M:%S %Z", "%H:%M:%S")
    for shape in shapes:
        try:
            moment = datetime.fromisoformat(text) if shape is None else datetime.strptime(text, shape)
        except ValueError:
            continue
        return GoTime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    raise ValueError(f"invalid date {text}")


_GOVALUATE = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}(?::\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?)?|\d{1,2}:\d{2}(?::\d{2})?"
)


def read_quoted_time(text: str) -> float | None:
    """Unix seconds of a quoted text that govaluate takes for a date, or None."""
    if not _GOVALUATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text if "-" in text else f"0001-01-01 {text.zfill(len(text) + len(text) % 2)}")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h|d)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str, *, days: bool = False) -> float:
    """Seconds of a Go duration such as `1h30m`. Raises ValueError with Go's wording."""
    body = text.lstrip("+-")
    if body == "0":
        return 0.0
    parts = _DURATION.findall(body)
    if not body or "".join(number + unit for number, unit in parts) != body or (not days and "d" in body):
        missing = re.fullmatch(r"[0-9]*\.?[0-9]+", body)
        raise ValueError(f'time: {"missing unit in" if missing else "invalid"} duration "{text}"')
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -total if text.startswith("-") else total


def loose_duration(text: str) -> float:
    """Seconds of a duration in Argo's own form: a bare number is in seconds, and `d` is a unit."""
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return float(text)
    try:
        return duration(text, days=True)
    except ValueError:
        raise ValueError(f'unable to parse {text} as a duration: time: invalid duration "{text}"') from None


def shown(seconds: float) -> str:
    """A moment as Kubernetes writes it: RFC 3339 in UTC, whole seconds."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_shown(text: str) -> float:
    """The inverse of `shown`."""
    return datetime.fromisoformat(text).timestamp()
