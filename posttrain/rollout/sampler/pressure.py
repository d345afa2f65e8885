"""How many trajectories run at once, from what the engines say of their caches. Pure.

The cap grows by one for each that ended well while there is room, and is cut by a fifth when the cache is nearly full
or requests wait for room in it: additive increase, multiplicative decrease (Chiu and Jain 1989), so that it settles
where the cache is full and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pressure:
    """Of one engine: share of the KV cache in use, requests that wait for room, requests put off again so far."""

    used: float
    waiting: int = 0
    preempted: int = 0


def next_cap(cap: int, now: Sequence[Pressure], before: Sequence[Pressure], *, least: int, most: int,
             high: float) -> int:  # fmt: skip
    """The cap after a look at the engines; without an answer of any it stays."""
    if not now:
        return cap
    put_off = sum(p.preempted for p in now) > sum(p.preempted for p in before)
    if put_off or any(p.used > high for p in now):
        return max(least, cap * 4 // 5)
    return min(most, cap + max(1, cap // 16)) if all(not p.waiting for p in now) else cap
