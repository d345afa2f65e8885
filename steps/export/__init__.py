"""Turns the trained model into a release: a Hugging Face directory with its lineage, checked and registered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from posttrain.contract import Resources, StepSpec
from posttrain.errors import UserError
from posttrain.evaluation.settings import check_confidence


@dataclass(frozen=True)
class Inputs:
    model: str
    checkpoint: str
    base: str
    train: str
    baseline_results: str
    results: str
    verdict: str


@dataclass(frozen=True)
class Outputs:
    """`registered` is the name and version in MLflow's model registry, or "unregistered"."""

    release: str
    registered: str


@dataclass
class Config:
    """`tolerance` bounds the difference in log-probability between the release and its checkpoint, whose weights are
    rounded as the release's are; both are computed in float32, so that hardly anything may be left."""

    name: str = ""  # below releases/; empty: after the model that training began with
    license: str = ""  # of the release, as on a model card; empty: the base model's
    probes: int = 4  # conversations whose log-probabilities are compared
    tolerance: float = 1e-3
    confidence: float = 0.95  # of the intervals on the model card

    def __post_init__(self) -> None:
        if self.name and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name):
            raise UserError(
                "is no name of a directory", field="name", value=self.name, remedy="write letters, digits, -"
            )
        if self.probes < 1:
            raise UserError("must be at least 1", field="probes", value=self.probes)
        if not self.tolerance > 0:
            raise UserError("must be greater than 0", field="tolerance", value=self.tolerance)
        check_confidence(self.confidence, "confidence")


SPEC = StepSpec(
    name="export",
    package="steps.export",
    summary="Write the release with its model card, check it against the checkpoint, register it",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="6Gi"),
    deadline_seconds=3600,
    tracked=True,
)
