"""Cold start: supervised training on a few rows of high quality, so that reinforcement learning finds a reward."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Resources, StepSpec, measured
from posttrain.training.config import Selection, Training


@dataclass(frozen=True)
class Inputs:
    model: str
    train: str
    validation: str


@dataclass(frozen=True)
class Outputs:
    """As of `sft`; `rows` were chosen, and `selection` (a file below the step) says which and why not the others."""

    model: str
    checkpoint: str
    rows: int
    selection: str
    loss: float
    validation_loss: float
    updates: int
    tokens: int
    tokens_per_second: float = measured(0.0)


@dataclass
class Config(Training):
    epochs: int = 2
    selection: Selection = field(default_factory=Selection)


SPEC = StepSpec(
    name="cold_start",
    package="steps.cold_start",
    summary="Teach the form of an answer with a few rows of high quality",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="8Gi"),
    deadline_seconds=24 * 3600,
    retries=2,
    tracked=True,
)
