"""The order in which groups begin, by how long they are likely to be. Pure.

Long answers beside short ones leave an engine half empty at the end of every batch. So groups of like length begin
together: within a block the groups are ordered by predicted length; every other block begins in random order instead.
A block holds the same groups either way, so that the mix of lengths that reaches the trainer is that of random order.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_REMEMBERED = 100_000  # tasks whose lengths are known


def task_of(number: int, tasks: int, *, seed: int) -> int:
    """The task of group `number`: all tasks once in an order of the seed, then all again in another one."""
    epoch, place = divmod(number, tasks)
    return _permuted(place, tasks, f"{seed}/{epoch}")


def block_order(block: Sequence[int], expected: Mapping[int, float], *, seed: int, number: int) -> list[int]:
    """The groups of block `number` in the order in which they begin; `expected` tokens are by group."""
    if number % 2:
        return sorted(block, key=lambda group: (-expected.get(group, 0.0), group))
    return sorted(block, key=lambda group: _draw(f"{seed}/{number}/{group}"))


@dataclass
class Lengths:
    """Sampled tokens of each task's trajectories, as an average that forgets; tasks never seen have that of all."""

    forget: float = 0.5
    _by_task: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _all: float = 0.0

    def saw(self, task: str, tokens: float) -> None:
        before = self._by_task.pop(task, tokens)
        self._by_task[task] = before + self.forget * (tokens - before)
        self._all += 0.05 * (tokens - self._all) if self._all else tokens
        if len(self._by_task) > _REMEMBERED:
            self._by_task.popitem(last=False)

    def expected(self, task: str) -> float:
        return self._by_task.get(task, self._all)


def _permuted(place: int, size: int, key: str) -> int:
    """A permutation of range(size) at `place`, without making all of it: four rounds of a Feistel network, walked
    until it falls into the range (Black and Rogaway 2002)."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(4):
            left, right = right, left ^ (_draw(f"{key}/{turn}/{right}") & mask)
        place = (left << half) | right
        if place < size:
            return place


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
