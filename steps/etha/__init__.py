"""The coordinator of versions: beside trainer and engines, it says who gets which weights, and when they are served."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.units import is_port

PORT = 8700


@dataclass
class Config:
    """`etha.database` is a path in the step's directory, unless it is absolute."""

    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    etha: CoordinatorSettings = field(default_factory=CoordinatorSettings)

    def __post_init__(self) -> None:
        is_port("port", self.port)


SPEC = StepSpec(
    name="etha",
    package="steps.etha",
    summary="Bring every version of the weights to every inference rank, and have it served",
    environment="cpu",
    Inputs=Nothing,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="1", memory="2Gi"),
    deadline_seconds=7 * 24 * 3600,
    port=PORT,
    ready="/ready",
)
