"""Settings of an iteration of reinforcement learning. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.errors import UserError
from posttrain.training.config import Learning
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.selection.config import SampleSelection
from posttrain.units import at_least


@dataclass
class Steady(Learning):
    """Learning whose end is not known when it begins: at one rate."""

    learning_rate: float = 1e-6
    schedule: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule != "constant" or self.warmup:
            name = "warmup" if self.schedule == "constant" else "schedule"
            reason = "has no meaning where the number of updates is not known at the start"
            raise UserError(reason, field=f"learning.{name}", value=getattr(self, name), remedy="leave it out")


@dataclass
class Reinforcement:
    """An iteration: `updates` updates, each of `groups_per_update` groups that teach something.

    Groups that teach nothing (see `selection`) are dropped, counted, and others taken in their place. A sample of which
    a token is older than `max_staleness` versions is dropped as well.
    """

    updates: int = 8
    groups_per_update: int = 16
    max_staleness: int = 1
    temperature: float = 1.0  # the sampler's
    minibatches: int = 1  # steps of the optimiser in one update, each on a part of its samples
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    selection: SampleSelection = field(default_factory=SampleSelection)
    learning: Steady = field(default_factory=Steady)
    wait_seconds: float = 3600.0  # for a group
    measure_only: bool = False  # everything but the change of the weights

    def __post_init__(self) -> None:
        for name, least in (("updates", 1), ("groups_per_update", 1), ("max_staleness", 0), ("minibatches", 1)):
            at_least(name, getattr(self, name), least)
        for name in ("temperature", "wait_seconds"):
            if not getattr(self, name) > 0:
                raise UserError("must be greater than 0", field=name, value=getattr(self, name))
        if not self.objective.kind.samples:
            remedy = "choose one that learns from rewards, as grpo"
            raise UserError("learns from no reward", field="objective.name", value=self.objective.name, remedy=remedy)
        if self.selection.groups:
            remedy = "set groups_per_update"
            raise UserError("is groups_per_update here", field="selection.groups", value=self.selection.groups,
                            remedy=remedy)  # fmt: skip
