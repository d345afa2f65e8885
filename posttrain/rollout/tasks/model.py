"""Outcomes, and what the decisions know of a task. Plain data.

Invariants: the set of outcomes is closed, and the sandboxes' own; only an infrastructure error says nothing about the
work itself, and only it is retried; a task is `pending`, `leased` or has its outcome, which never changes.
Times are seconds since the epoch by the server's clock; nobody else's clock is ever compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from posttrain.sandbox.protocol import Outcome

__all__ = ["Attempt", "Candidate", "Next", "Outcome", "Share", "State"]


class State(StrEnum):
    """What comes before an outcome, or the outcome."""

    pending = "pending"
    leased = "leased"
    succeeded = "succeeded"
    failed = "failed"
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    over_quota = "over_quota"
    cancelled = "cancelled"
    infrastructure_error = "infrastructure_error"

    @property
    def final(self) -> bool:
        return self not in (State.pending, State.leased)


@dataclass(frozen=True)
class Candidate:
    """A pending task that may start now. Of one queue the highest priority goes first, then the oldest (`seq`)."""

    seq: int
    kind: str
    queue: str
    priority: int


@dataclass(frozen=True)
class Share:
    """A queue's part of the leases: `weight` over the sum of the weights of the queues that have work.

    `finish` is the virtual time at which its last lease is paid for.
    """

    weight: float = 1.0
    finish: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """What is known of a task when its attempt ends: how many there were, how many may be, until when (None: ever)."""

    task: str
    number: int
    max_attempts: int
    deadline: float | None


@dataclass(frozen=True)
class Next:
    """What becomes of a task: its final state, or `PENDING` again from `not_before` on."""

    state: State
    not_before: float = 0.0
