"""Every vendor's interface in front of vLLM, with each run's trajectory kept as token ids. See docs/gateway.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.llmm.gateway.settings import GatewaySettings
from posttrain.units import is_port

PORT = 8100


@dataclass(frozen=True)
class Inputs:
    model: str  # the model directory: its tokenizer and chat template, not its weights
    stream: str = ""  # URI of the `experience` stream; what is given here stands before the configuration's


@dataclass
class Config:
    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    gateway: GatewaySettings = field(default_factory=GatewaySettings)

    def __post_init__(self) -> None:
        is_port("port", self.port)


SPEC = StepSpec(
    name="gateway",
    package="steps.gateway",
    summary="Serve every vendor's interface in front of vLLM, and keep each run's trajectory",
    environment="rollout",
    Inputs=Inputs,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="2", memory="2Gi"),
    deadline_seconds=24 * 3600,
    port=PORT,
    ready="/health",
)
