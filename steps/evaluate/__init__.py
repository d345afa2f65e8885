"""Measures a model on an evaluation set: samples answers, verifies them, gives accuracy with its interval."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Resources, StepSpec, measured
from posttrain.errors import UserError
from posttrain.evaluation.settings import Sampling, check_confidence
from posttrain.reward.score import AnswerForm
from posttrain.serving.settings import EngineSettings
from posttrain.units import at_least


@dataclass(frozen=True)
class Inputs:
    model: str
    data: str


@dataclass(frozen=True)
class Outputs:
    """`accuracy_low` and `accuracy_high` are the interval at the configured confidence; `rows` counts prompts."""

    results: str
    summary: str
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    format_rate: float
    mean_tokens: float
    rows: int
    seconds: float = measured(0.0)


@dataclass
class Config:
    sampling: Sampling = field(default_factory=Sampling)
    answer: AnswerForm = field(default_factory=AnswerForm)
    engine: EngineSettings = field(default_factory=EngineSettings)
    few_shot: int = 0  # solved rows put before every prompt
    examples: str = ""  # the table that they are taken from, one that prepare_data wrote for training
    limit: int = 0  # only the first rows of the set; 0: all
    confidence: float = 0.95
    shown: int = 12  # samples kept in the summary for the report

    def __post_init__(self) -> None:
        check_confidence(self.confidence, "confidence")
        for name in ("few_shot", "limit", "shown"):
            at_least(name, getattr(self, name), 0)
        if self.few_shot and not self.examples:
            raise UserError("needs a table of solved rows", field="examples", remedy="name one, or set few_shot to 0")


SPEC = StepSpec(
    name="evaluate",
    package="steps.evaluate",
    summary="Measure the model on the evaluation set",
    environment="rollout",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="6Gi", gpu=1),
    deadline_seconds=4 * 3600,
    retries=2,
    tracked=True,
)
