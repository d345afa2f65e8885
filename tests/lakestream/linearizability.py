"""A checker of histories: whether concurrent operations could have happened one at a time, each within its interval.

The search is Wing and Gong's (1993) with Lowe's memo of (operations done, state). An operation whose answer never
came has no end: it may have taken effect at any later moment, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Operation:
    """Called at `start`, answered at `end` with `answer`; `end` is infinite where no answer came."""

    start: float
    end: float
    call: tuple[Any, ...]
    answer: Any = None

    @property
    def is_open(self) -> bool:
        return self.end == float("inf")


Apply = Callable[[Hashable, tuple[Any, ...]], tuple[Hashable, Any]]  # state, call -> next state, answer


def linearize(history: Sequence[Operation], initial: Hashable, apply: Apply) -> list[Operation] | None:
    """An order of the history that `apply` agrees with, or None where there is none."""
    order = sorted(history, key=lambda operation: operation.start)
    every = frozenset(i for i, operation in enumerate(order) if not operation.is_open)
    tried: set[tuple[frozenset[int], Hashable]] = set()
    stack: list[tuple[frozenset[int], Hashable, tuple[int, ...]]] = [(frozenset(), initial, ())]
    while stack:
        done, state, path = stack.pop()
        if every <= done:
            return [order[i] for i in path]
        horizon = min(order[i].end for i in range(len(order)) if i not in done)
        for i, operation in enumerate(order):
            if i in done or operation.start > horizon:
                continue  # something that had ended before this began must come first
            after, answer = apply(state, operation.call)
            if after == state if operation.is_open else answer != operation.answer:
                continue  # without an answer and without an effect it says nothing
            step = (done | {i}, after)
            if step not in tried:
                tried.add(step)
                stack.append((*step, (*path, i)))
    return None


def stream(state: Hashable, call: tuple[Any, ...]) -> tuple[Hashable, Any]:
    """A stream as one would write it with a lock around it.

    The state is (closed, ((name, epoch, cursor), …)). Calls: ("register", name) answers epoch and cursor,
    ("append", name, epoch, cursor) answers "ok" or "fenced", ("close",) answers "ok", ("read",) answers the state;
    all but close and read answer "closed" after the barrier.
    """
    closed, producers = state  # type: ignore[misc]
    known = {name: (epoch, cursor) for name, epoch, cursor in producers}
    kind, *rest = call
    if kind == "read":
        return state, state
    if kind == "close":
        return (True, producers), "ok"
    name = rest[0]
    epoch, cursor = known.get(name, (0, None))
    if kind == "append" and epoch != rest[1]:
        return state, "fenced"
    if closed:
        return state, "closed"
    if kind == "register":
        known[name], answer = (epoch + 1, cursor), (epoch + 1, cursor)
    else:
        known[name], answer = (epoch, rest[2]), "ok"
    return (False, tuple(sorted((n, e, c) for n, (e, c) in known.items()))), answer


EMPTY: Hashable = (False, ())
