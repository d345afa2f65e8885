"""Samples trajectories of the policy, judged, into the stream `experience`, with its own vLLM replicas or others'."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.errors import UserError
from posttrain.rollout.sampler.settings import (
    AdmissionSettings,
    AgentSettings,
    RepetitionSettings,
    SamplingSettings,
)
from posttrain.serving.settings import EngineSettings
from posttrain.units import at_least, is_port

PORT = 8600


@dataclass(frozen=True)
class Inputs:
    model: str  # what the engines begin with
    reward: str  # the reward service's URL
    tasks: str = ""  # a table that prepare_data wrote, whose rows are the tasks; empty: the environment's own


@dataclass
class EnvironmentSettings:
    """As in `posttrain env`: the environment's name, and its own settings."""

    name: str = "math"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class Config:
    """`replicas` engines are started here, on the ports after `port`, unless `engines` names others' addresses.
    The streams are lake/RUN/experience.lance, progress.lance and timings.lance of the workspace."""

    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    replicas: int = 1
    engines: list[str] = field(default_factory=list)
    engine: EngineSettings = field(default_factory=lambda: EngineSettings(context_length=2048))
    start_seconds: float = 600.0
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    repetition: RepetitionSettings = field(default_factory=RepetitionSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    template: str = ""  # file of a chat template in place of the model's own
    template_arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_port("port", self.port)
        at_least("replicas", self.replicas, 0 if self.engines else 1)
        room = self.engine.context_length
        if room and self.sampling.trajectory_tokens > room:
            raise UserError(
                f"is more than engine.context_length ({room})", field="sampling.trajectory_tokens",
                value=self.sampling.trajectory_tokens, remedy="lower it, or raise engine.context_length",
            )  # fmt: skip


SPEC = StepSpec(
    name="rollout",
    package="steps.rollout",
    summary="Sample the policy in an environment, and put judged trajectories into the stream",
    environment="rollout",
    Inputs=Inputs,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="4", memory="16Gi", gpu=1),
    deadline_seconds=7 * 24 * 3600,
    port=PORT,
    ready="/ready",
)
