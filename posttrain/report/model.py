"""What a report shows, as plain data. `collect` fills it from the workspace; `page` only draws it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepView:
    """One step of the run. `started` is in seconds since the epoch; `record` is its record.json, if it ended.

    `curves` maps a metric's name to its points (training step, value). `waits_for` names steps.
    """

    name: str
    phase: str
    started: float | None = None
    seconds: float | None = None
    message: str = ""
    waits_for: tuple[str, ...] = ()
    record: dict[str, Any] | None = None
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """A share in [0, 1] with the interval it lies in, over `rows` samples."""

    value: float
    low: float
    high: float
    rows: int = 0


@dataclass(frozen=True)
class Evaluation:
    """One model on the evaluation set: `name` is the step's."""

    name: str
    accuracy: Score
    format_rate: float
    mean_tokens: float
    tiers: dict[str, Score] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    completion: str
    correct: bool


@dataclass(frozen=True)
class Sample:
    """One prompt and how each evaluation answered it, in the order of `RunReport.evaluations`."""

    id: str
    prompt: str
    expected: str
    tier: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class RunReport:
    """`evaluations` holds the baseline first where the run has a gate that says which one it is."""

    run: str
    route: str
    phase: str
    started: float | None
    seconds: float | None
    steps: tuple[StepView, ...]
    evaluations: tuple[Evaluation, ...] = ()
    samples: tuple[Sample, ...] = ()

    def step(self, package: str) -> StepView | None:
        """The step that ran `steps.NAME` and left a record."""
        return next((s for s in self.steps if s.record and s.record["package"] == f"steps.{package}"), None)
