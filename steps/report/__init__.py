"""Writes the run's HTML page. The exit handler of every route: it runs however the workflow ended."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.contract import Resources, StepSpec
from posttrain.errors import UserError


@dataclass(frozen=True)
class Inputs:
    """What Argo tells an exit handler: the workflow's phase, its failed nodes as JSON, its seconds."""

    status: str = ""
    failures: str = "null"
    duration: str = ""


@dataclass(frozen=True)
class Outputs:
    page: str


@dataclass
class Config:
    """`samples`: how many pairs of answers the page shows."""

    samples: int = 24

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise UserError("cannot be negative", field="samples", value=self.samples)


SPEC = StepSpec(
    name="report",
    package="steps.report",
    summary="one HTML page about the run",
    environment="control",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="500m", memory="512Mi"),
    deadline_seconds=600,
    retries=0,
)
