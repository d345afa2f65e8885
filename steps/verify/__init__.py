"""Asks the served model through its interface, and stops the release when it is not what was evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Resources, StepSpec, measured
from posttrain.serving.requirements import Requirements
from posttrain.units import is_port


@dataclass(frozen=True)
class Inputs:
    """`address` is the host name or ip of the served model; `results` those of the release's evaluation."""

    release: str
    results: str
    address: str


@dataclass(frozen=True)
class Outputs:
    verdict: str
    served_accuracy: float = measured(0.0)  # a server batches as requests come, so that near ties may turn
    latency_p50_ms: float = measured(0.0)
    latency_p99_ms: float = measured(0.0)
    tokens_per_second: float = measured(0.0)


@dataclass
class Config:
    port: int = 8000
    wait_seconds: float = 60.0  # for the server to be healthy
    requirements: Requirements = field(default_factory=Requirements)

    def __post_init__(self) -> None:
        is_port("port", self.port)


SPEC = StepSpec(
    name="verify",
    package="steps.verify",
    summary="Verify the served release through its interface",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="1", memory="1Gi"),
    deadline_seconds=3600,
    retries=0,
    tracked=True,
)
