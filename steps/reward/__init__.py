"""Serves verdicts until it is told to stop: the reward service of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.errors import UserError
from posttrain.reward.settings import DATABASE_VARIABLE, RewardSettings
from posttrain.units import is_port

PORT = 8400


@dataclass
class Config:
    """Paths of `service` that are relative are the workspace's (`database`, `stream`, models and functions)."""

    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    service: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        is_port("port", self.port)
        if re.search(r"://[^/@]*:[^/@]*@", self.service.database):
            raise UserError(
                "holds a password, which would be recorded", field="service.database",
                remedy=f"give the URL in the environment variable {DATABASE_VARIABLE}",
            )  # fmt: skip


SPEC = StepSpec(
    name="reward",
    package="steps.reward",
    summary="Give verdicts on what the policy has answered, each computed once and kept",
    environment="cpu",
    Inputs=Nothing,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="2", memory="4Gi"),
    deadline_seconds=7 * 24 * 3600,
    port=PORT,
    ready="/ready",
)
