"""How hard a problem is: easy, medium or hard.

A row that brings its tier keeps it. The others get theirs from the place of the generator's
parameters in their ranges, or from how often a model solves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from posttrain.data.config import Tiers
from posttrain.data.schema import Example

DEFAULT = "medium"


class PassRate(Protocol):
    def __call__(self, examples: Sequence[Example]) -> list[float]:
        """The share of a model's samples that solve each example, between 0 and 1."""


def assign(examples: list[Example], config: Tiers, pass_rate: PassRate | None) -> list[Example]:
    """Every example with a tier. `pass_rate` is asked about the rows without one, where the rule needs it."""
    lacking = [place for place, example in enumerate(examples) if not example.tier]
    if config.by == "pass_rate":
        assert pass_rate is not None
        rates = pass_rate([examples[place] for place in lacking])
        tiers = [by_rate(rate, config) for rate in rates]
    elif config.by == "parameters":
        tiers = [by_parameters(examples[place].metadata) for place in lacking]
    else:
        tiers = [DEFAULT] * len(lacking)
    result = list(examples)
    for place, tier in zip(lacking, tiers, strict=True):
        result[place] = replace(examples[place], tier=tier)
    return result


def by_rate(rate: float, config: Tiers) -> str:
    return "easy" if rate >= config.easy_from else "medium" if rate >= config.medium_from else "hard"


def by_parameters(metadata: dict[str, Any]) -> str:
    """The mean place of the parameters in the ranges under `difficulty`, in thirds.

    reasoning-gym's entries say both: `{"num_terms": 3, "difficulty": {"num_terms": (2, 4)}}`.
    """
    ranges = metadata.get("difficulty")
    places = []
    for name, bounds in ranges.items() if isinstance(ranges, dict) else ():
        value = metadata.get(name)
        if _number(value) and isinstance(bounds, tuple | list) and len(bounds) == 2 and all(map(_number, bounds)):
            low, high = bounds
            if high > low:
                places.append((value - low) / (high - low))
    if not places:
        return DEFAULT
    mean = sum(places) / len(places)
    return "easy" if mean < 1 / 3 else "medium" if mean < 2 / 3 else "hard"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
