"""Serves a release over vLLM's OpenAI-compatible interface until it is told to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.errors import UserError
from posttrain.serving.settings import EngineSettings
from posttrain.units import is_port

PORT = 8000


@dataclass(frozen=True)
class Inputs:
    release: str


@dataclass
class Config:
    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    model_name: str = ""  # by which clients ask for it; empty: the release's
    start_seconds: int = 600  # how long it may take until it is healthy
    engine: EngineSettings = field(default_factory=EngineSettings)

    def __post_init__(self) -> None:
        is_port("port", self.port)
        if self.start_seconds < 1:
            raise UserError("must be at least 1", field="start_seconds", value=self.start_seconds)


SPEC = StepSpec(
    name="serve",
    package="steps.serve",
    summary="Serve the release over an OpenAI-compatible interface",
    environment="rollout",
    Inputs=Inputs,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="2", memory="6Gi", gpu=1),
    deadline_seconds=24 * 3600,
    port=PORT,
    ready="/health",
)
