"""Supervised fine-tuning of a model on prepared conversations."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.contract import Resources, StepSpec, measured
from posttrain.training.config import Training


@dataclass(frozen=True)
class Inputs:
    model: str
    train: str
    validation: str


@dataclass(frozen=True)
class Outputs:
    """`loss` is the mean over the last ten updates; `validation_loss` belongs to the exported weights."""

    model: str
    checkpoint: str
    loss: float
    validation_loss: float
    updates: int
    tokens: int
    tokens_per_second: float = measured(0.0)


@dataclass
class Config(Training):
    """The settings of supervised training as they are."""


SPEC = StepSpec(
    name="sft",
    package="steps.sft",
    summary="Fine-tune the model on the prepared conversations",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="8Gi"),
    deadline_seconds=24 * 3600,
    retries=2,
    tracked=True,
)
