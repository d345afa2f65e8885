"""One cron schedule: five fields or a descriptor, in a time zone. Pure.

Days match as cron has it: where both the day of the month and the day of the week are restricted,
either is enough. A time that a change of clocks leaves out is left out; one that comes twice counts twice.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass

_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_YEARS = 5  # a schedule that is not due within this many years (31 February) is never due


@dataclass(frozen=True)
class _Field:
    values: frozenset[int]
    any: bool


class Schedule:
    """A schedule such as `0 5 * * mon-fri`. Raises ValueError for what is none."""

    def __init__(self, text: str, timezone: str = ""):
        self.text = text
        zone, text = _zone_in(text.strip())
        self.zone = _zone(zone or timezone)
        self.every: float | None = None
        if text.startswith("@every "):
            self.every = _period(text[7:].strip())
            return
        if text.startswith("@"):
            if text not in _DESCRIPTORS:
                raise ValueError(f"unrecognized descriptor: {text}")
            text = _DESCRIPTORS[text]
        parts = text.split()
        if len(parts) != 5:
            raise ValueError(f"expected exactly 5 fields, found {len(parts)}: [{text}]")
        self.fields = [_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]

    def after(self, moment: float) -> float | None:
        """The first due time later than `moment` (seconds since the epoch), or None where there is none."""
        if self.every is not None:
            return float(int(moment) + max(int(self.every), 1))
        minute, hour, _, month, _ = self.fields
        now = (int(moment) // 60 + 1) * 60
        limit = self._local(now).year + _YEARS
        while True:
            local = self._local(now)
            if local.year > limit:
                return None
            if local.month not in month.values:
                now = self._later(now, _next_month(local))
            elif not self._day(local):
                now = self._later(now, (local + datetime.timedelta(days=1)).replace(hour=0, minute=0))
            elif local.hour not in hour.values:
                now += (60 - local.minute) * 60
            elif local.minute not in minute.values:
                now += 60
            else:
                return float(now)

    def _local(self, moment: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(moment, self.zone)

    def _later(self, now: int, local: datetime.datetime) -> int:
        """The moment of a local time, but always later than `now`."""
        return max(int(local.replace(tzinfo=self.zone, fold=0).timestamp()) // 60 * 60, now + 60)

    def _day(self, local: datetime.datetime) -> bool:
        of_month, of_week = self.fields[2], self.fields[4]
        in_month, in_week = local.day in of_month.values, local.isoweekday() % 7 in of_week.values
        return in_month and in_week if of_month.any or of_week.any else in_month or in_week


def _next_month(local: datetime.datetime) -> datetime.datetime:
    return (local.replace(day=1) + datetime.timedelta(days=32)).replace(day=1, hour=0, minute=0)


def _zone_in(text: str) -> tuple[str, str]:
    found = re.match(r"(?:CRON_)?TZ=(\S+)\s+(.*)", text)
    return (found[1], found[2]) if found else ("", text)


def _zone(name: str) -> datetime.tzinfo | None:
    """None is the machine's own zone."""
    if name in ("", "Local"):
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'invalid timezone "{name}": unknown time zone {name}') from None


def _period(text: str) -> float:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"failed to parse duration @every {text}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _field(text: str, name: str, low: int, high: int, names: dict[str, int]) -> _Field:
    values: set[int] = set()
    any_of_them = False
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            raise ValueError(f"step of range should be a positive number: {part} ({name})")
        if span in ("*", "?"):
            first, last = low, high
            any_of_them = any_of_them or not slash or step == "1"
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, name, names)
            last = _number(end, name, names) if dash else high if slash else first
        if first < low or last > high or first > last:
            raise ValueError(f"{part} lies outside of {low}-{high} ({name})")
        values.update(range(first, last + 1, int(step or "1")))
    return _Field(frozenset(values), any_of_them)


def _number(text: str, name: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"failed to parse int from {text!r} ({name})")
    return int(text)
