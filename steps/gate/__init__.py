"""Stops the workflow when the candidate is worse than the baseline by more than is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.contract import Resources, StepSpec
from posttrain.evaluation.settings import GatePolicy


@dataclass(frozen=True)
class Inputs:
    """Both are results of `evaluate` on the same evaluation set."""

    baseline: str
    candidate: str


@dataclass(frozen=True)
class Outputs:
    """`difference` is the candidate's accuracy less the baseline's, with the interval of a paired bootstrap."""

    difference: float
    low: float
    high: float
    verdict: str


@dataclass
class Config(GatePolicy):
    """The policy as it is."""


SPEC = StepSpec(
    name="gate",
    package="steps.gate",
    summary="Compare the candidate with the baseline and stop when it is worse than allowed",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="1", memory="1Gi"),
    deadline_seconds=1800,
    retries=0,
)
