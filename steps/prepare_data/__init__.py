"""Turns sources into the tables that a run trains, validates and evaluates on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posttrain.contract import Resources, StepSpec
from posttrain.data.config import DataConfig
from posttrain.data.paths import check_sources


@dataclass
class Config(DataConfig):
    """See `posttrain.data.config`, where each key is explained."""


@dataclass(frozen=True)
class Inputs:
    """`model` gives the tokenizer that counts tokens."""

    model: str


@dataclass(frozen=True)
class Outputs:
    train: str
    validation: str
    evaluation: str
    rows_train: int
    rows_validation: int
    rows_evaluation: int
    rows_quarantined: int
    card: str


def check(config: Config, workspace: Path) -> None:
    """Whether the files that the sources name are there and hold something."""
    check_sources(config.sources, workspace)


SPEC = StepSpec(
    name="prepare_data",
    package="steps.prepare_data",
    summary="Clean, deduplicate, decontaminate, grade and split the data",
    environment="rollout",  # difficulty may be sampled from a model
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="4Gi"),
    deadline_seconds=4 * 3600,
    check=check,
)
