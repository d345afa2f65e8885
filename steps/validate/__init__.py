"""Checks a run's whole configuration where it will run, before anything costs time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posttrain.contract import Nothing, Resources, StepSpec


@dataclass
class Config:
    """`config` maps each step of the route to its configuration; whoever renders the route fills both."""

    route: str = ""
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outputs:
    summary: str


SPEC = StepSpec(
    name="validate",
    package="steps.validate",
    summary="Check the configuration of every step against its schema and the workspace",
    environment="control",
    Inputs=Nothing,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="100m", memory="256Mi"),
    deadline_seconds=600,
)
