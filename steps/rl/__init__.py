"""One iteration of reinforcement learning: updates on what the sampler has put into the stream, each given to the
engines."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Resources, StepSpec, live
from posttrain.errors import UserError
from posttrain.training.rl.config import Reinforcement
from posttrain.units import at_least
from steps import etha, rollout


@dataclass(frozen=True)
class Inputs:
    """`experience` is the URI of the stream. `checkpoint` is the one of the iteration before; `reference` is the model
    that a KL price is measured from. `rollout` is the sampler's address: without it, as when the iteration is run
    again, it is computed from the stream alone."""

    model: str
    experience: str
    checkpoint: str = ""
    reference: str = ""
    rollout: str = live()


@dataclass(frozen=True)
class Outputs:
    """Groups and samples are counted since the loop began; `reward` is the last update's mean."""

    model: str
    checkpoint: str
    rows: str
    version: int
    reward: float
    groups_trained: int
    groups_dropped: int
    samples_trained: int


@dataclass
class WeightSettings:
    """Through the Etha coordinator beside this step, at `port` of its own pod, or at the URL `coordinator`. `keep`
    versions stay in memory for replicas that come late."""

    port: int = etha.PORT
    coordinator: str = ""
    transport: str = "process_group"  # shm where trainer and engines see one /dev/shm
    keep: int = 1
    timeout: float = 600.0

    def __post_init__(self) -> None:
        at_least("weights.keep", self.keep, 0)
        if not self.timeout > 0:
            raise UserError("must be greater than 0", field="weights.timeout", value=self.timeout)


@dataclass
class Config(Reinforcement):
    rollout_port: int = rollout.PORT
    weights: WeightSettings = field(default_factory=WeightSettings)


SPEC = StepSpec(
    name="rl",
    package="steps.rl",
    summary="Update the policy on what it has sampled, and give the weights to the engines",
    environment="train",
    Inputs=Inputs,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="16Gi", gpu=1),
    deadline_seconds=24 * 3600,
    retries=2,
    tracked=True,
)
