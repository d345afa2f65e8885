"""The objectives there are: the options of each, and what it is by default. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from posttrain.errors import UserError
from posttrain.units import at_least, within


@dataclass
class NoOptions:
    """Of an objective that has none."""


@dataclass
class Clip:
    """Ratios beyond [1 - clip_low, 1 + clip_high] that would go further get no gradient (PPO, 1707.06347)."""

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        within("clip_low", self.clip_low, 0, 1)
        at_least("clip_high", self.clip_high, 0)


@dataclass
class Dapo(Clip):
    """More room above than below (Yu et al., 2503.14476)."""

    clip_high: float = 0.28


@dataclass
class Gspo(Clip):
    """Of the ratio of whole sequences, hence small (Zheng et al., 2507.18071)."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4


@dataclass
class Cispo:
    """A token's weight is its ratio within these (MiniMax-M1, 2506.13585; the upper one as in ScaleRL, 2510.13786)."""

    ratio_min: float = 0.0
    ratio_max: float = 5.0

    def __post_init__(self) -> None:
        at_least("ratio_min", self.ratio_min, 0)
        at_least("ratio_max", self.ratio_max, self.ratio_min)


@dataclass
class Ppo(Clip):
    """`value_clip` 0 does not clip values; `gamma` and `lam` are those of GAE (Schulman et al., 1506.02438)."""

    value_coefficient: float = 0.1
    value_clip: float = 0.2
    gamma: float = 1.0
    lam: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("value_coefficient", self.value_coefficient, 0)
        at_least("value_clip", self.value_clip, 0)
        within("gamma", self.gamma, 0, 1)
        within("lam", self.lam, 0, 1)


@dataclass
class Topr:
    """Bounds on the ratio of a sample that weighs it, by the sign of its advantage (Le Roux et al., 2503.14286)."""

    positive_low: float = 1.0
    positive_high: float = 1.0
    negative_low: float = 0.0
    negative_high: float = 1.0

    def __post_init__(self) -> None:
        for sign in ("positive", "negative"):
            at_least(f"{sign}_low", getattr(self, f"{sign}_low"), 0)
            at_least(f"{sign}_high", getattr(self, f"{sign}_high"), getattr(self, f"{sign}_low"))


@dataclass
class Dpo:
    """`beta` holds to the reference (Rafailov et al., 2305.18290); `label_smoothing` is the share of wrong labels."""

    beta: float = 0.1
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise UserError("must be greater than 0", field="beta", value=self.beta)
        within("label_smoothing", self.label_smoothing, 0, 0.5)


class Kind(NamedTuple):
    """What an objective is by default, and what of it cannot be changed."""

    options: type
    baseline: str = "none"
    scale: str = "none"
    aggregation: str = "tokens"
    unit: int = 1  # sequences that lie in one micro-batch together
    whole: bool = False  # the loss is of sequences, so that its aggregation is fixed
    samples: bool = True  # learns from rewards of samples: advantages, correction and KL make sense


KINDS = {
    "cross_entropy": Kind(NoOptions, samples=False),
    "grpo": Kind(Clip, "group", "group", "sequences"),
    "dr_grpo": Kind(Clip, "group", "none", "constant"),
    "dapo": Kind(Dapo, "group", "group", "tokens"),
    "gspo": Kind(Gspo, "group", "group", "sequences", whole=True),
    "cispo": Kind(Cispo, "group", "group", "tokens"),
    "rloo": Kind(Clip, "leave_one_out", "none", "sequences", whole=True),
    "reinforce": Kind(NoOptions, "batch", "none", "tokens"),
    "ppo": Kind(Ppo, "critic", "batch", "tokens"),
    "topr": Kind(Topr, "group", "none", "tokens"),
    "dpo": Kind(Dpo, aggregation="sequences", unit=2, whole=True, samples=False),
}
OWN = Kind(NoOptions, "group", "group", "tokens")  # a user's `module:function`
