"""Settings of the TaskServer and the time limits of a rollout. Imports nothing heavy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from posttrain.errors import UserError
from posttrain.rollout.tasks.decisions import Backoff, check_nesting
from posttrain.units import at_least

DATABASE_VARIABLE = "POSTTRAIN_TASKS_DATABASE"


@dataclass
class TimeLimits:
    """Seconds, from the inside out. Each must end before what holds it, so that whoever waits learns why."""

    tool_call: float = 60.0
    agent: float = 600.0
    scoring: float = 900.0
    sandbox_lifetime: float = 1200.0

    def __post_init__(self) -> None:
        names = ("tool_call", "agent", "scoring", "sandbox_lifetime")
        check_nesting([(f"limits.{name}", getattr(self, name)) for name in names])


@dataclass
class TaskServerSettings:
    """`database` is a path (SQLite) or a `postgresql://` URL; where it holds a password, give it by
    `POSTTRAIN_TASKS_DATABASE` instead, so that no record carries it."""

    database: str = "tasks.db"
    lease_seconds: float = 30.0  # without a heartbeat for this long, the worker counts as lost
    backoff_first_seconds: float = 1.0
    backoff_most_seconds: float = 60.0
    limits: dict[str, int] = field(default_factory=dict)  # kind -> leases at once; none for a kind that is not named
    weights: dict[str, float] = field(default_factory=dict)  # queue -> its share; 1 for a queue that is not named
    keep_seconds: float = 7 * 24 * 3600.0  # ended tasks and their results are removed after this long
    largest_bytes: int = 8 << 20  # of one request
    sweep_seconds: float = 0.25  # between two looks at what is due

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "backoff_first_seconds", "backoff_most_seconds", "keep_seconds", "sweep_seconds"):
            if not getattr(self, name) > 0:
                raise UserError("must be more than 0", field=name, value=getattr(self, name))
        for queue, weight in self.weights.items():
            if not weight > 0:
                raise UserError("must be more than 0", field=f"weights.{queue}", value=weight)
        for kind, limit in self.limits.items():
            if limit < 0:
                raise UserError("must be at least 0", field=f"limits.{kind}", value=limit, remedy="0 pauses the kind")
        at_least("largest_bytes", self.largest_bytes, 1)
        if "://" in self.database and not re.match(r"(postgresql|sqlite)(\+\w+)?://", self.database):
            remedy = "write a path for SQLite, or postgresql://USER@HOST/NAME"
            raise UserError("is no database", field="database", value=self.database.partition("@")[2], remedy=remedy)

    @property
    def backoff(self) -> Backoff:
        return Backoff(self.backoff_first_seconds, self.backoff_most_seconds)
