"""Who gets the next lease, and what an outcome does to a task. Pure: no clock, no database.

Fair share is start-time fair queueing (Goyal, Vin, Cheng 1996) with leases as packets: a queue pays 1/weight of
virtual time for each, and the queue that is furthest behind goes first. A queue that was idle starts at the present
virtual time, so that it cannot save up. Priorities order the tasks of one queue and never set one queue before another.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from posttrain.errors import UserError
from posttrain.rollout.tasks.model import Attempt, Candidate, Next, Outcome, Share, State


@dataclass(frozen=True)
class Chosen:
    """The candidates that get a lease, in order, with the shares and the virtual time after them."""

    taken: list[Candidate]
    shares: dict[str, Share]
    virtual: float


def choose(
    candidates: Iterable[Candidate], shares: Mapping[str, Share], virtual: float, free: Mapping[str, int], want: int
) -> Chosen:
    """At most `want` of `candidates`, of each kind at most `free[kind]` (a kind that is not named has no limit)."""
    waiting: dict[str, deque[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: (-c.priority, c.seq)):
        waiting.setdefault(candidate.queue, deque()).append(candidate)
    left, after = dict(free), {queue: shares.get(queue, Share()) for queue in waiting}
    taken: list[Candidate] = []
    while len(taken) < want:
        for line in waiting.values():
            while line and left.get(line[0].kind, 1) <= 0:  # a full kind does not hold up the queue's other kinds
                line.popleft()
        ready = [queue for queue, line in waiting.items() if line]
        if not ready:
            break
        queue = min(ready, key=lambda q: (max(virtual, after[q].finish), after[q].finish, q))
        virtual = max(virtual, after[queue].finish)
        after[queue] = replace(after[queue], finish=virtual + 1 / after[queue].weight)
        candidate = waiting[queue].popleft()
        if candidate.kind in left:
            left[candidate.kind] -= 1
        taken.append(candidate)
    return Chosen(taken, after, virtual)


@dataclass(frozen=True)
class Backoff:
    """Seconds before the next attempt: `first`, doubled each time up to `most`, with up to half of it taken off."""

    first: float = 1.0
    most: float = 60.0

    def after(self, task: str, number: int) -> float:
        """The pause after attempt `number` (from 1). The part taken off depends on the task, so that many that
        failed together do not come back together."""
        whole = min(self.most, self.first * 2.0 ** min(number - 1, 60))
        drawn = int.from_bytes(hashlib.sha256(f"{task}:{number}".encode()).digest()[:4]) / 2**32
        return whole * (1 - drawn / 2)


def after_outcome(attempt: Attempt, outcome: Outcome, now: float, backoff: Backoff) -> Next:
    """An infrastructure error is tried again while attempts and time are left; every other outcome is final."""
    if outcome is Outcome.infrastructure_error and attempt.number < attempt.max_attempts:
        again = now + backoff.after(attempt.task, attempt.number)
        if attempt.deadline is None or again < attempt.deadline:
            return Next(State.pending, again)
    return Next(State(outcome.value))


def overdue(lease_expires: float, attempt_deadline: float | None, now: float) -> Outcome | None:
    """How a leased attempt ends by the clock, or None. Whichever came first counts: a worker that fell silent
    before the deadline has not shown that the work takes too long."""
    if attempt_deadline is not None and attempt_deadline <= min(now, lease_expires):
        return Outcome.timed_out
    return Outcome.infrastructure_error if lease_expires <= now else None


def nested(*deadlines: float | None) -> float | None:
    """The earliest of several deadlines, of which None is no bound."""
    given = [deadline for deadline in deadlines if deadline is not None]
    return min(given) if given else None


def check_nesting(limits: Sequence[tuple[str, float]]) -> None:
    """Raise UserError unless each of the named time limits, from the inside out, is shorter than the next."""
    for (inner, seconds), (outer, longer) in itertools.pairwise(limits):
        if not 0 < seconds < longer:
            remedy = f"make {inner} shorter than {outer} ({longer:g} s): what is inside must end first"
            raise UserError("does not nest", field=inner, value=seconds, remedy=remedy)
