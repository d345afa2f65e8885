"""Which objective, and its options. Imports nothing heavy: specs of steps are made of these.

Invariants: the name and these keys are all that chooses an objective; an option that the chosen one does not have is an
error that names whose it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from posttrain.contract.config import resolve
from posttrain.errors import UserError
from posttrain.training.config import one_of
from posttrain.training.objectives.kinds import KINDS, OWN, Kind
from posttrain.units import at_least, within

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass
class Advantage:
    """How rewards become advantages. auto: as the objective's paper has it."""

    baseline: str = "auto"  # auto | group | leave_one_out | batch | critic | none: what is taken off a reward
    scale: str = "auto"  # auto | group | batch | none: whose standard deviation it is divided by

    def __post_init__(self) -> None:
        one_of(
            "objective.advantage.baseline", self.baseline, "auto", "group", "leave_one_out", "batch", "critic", "none"
        )
        one_of("objective.advantage.scale", self.scale, "auto", "group", "batch", "none")


@dataclass
class Overlong:
    """Takes from the reward of a sample within `buffer` tokens of `limit`, up to `penalty` at it (DAPO, 2503.14476)."""

    limit: int = 0  # tokens a sample may have; 0: off
    buffer: int = 0
    penalty: float = 1.0

    def __post_init__(self) -> None:
        at_least("objective.overlong.limit", self.limit, 0)
        if self.limit:
            within("objective.overlong.buffer", self.buffer, 1, self.limit)
        at_least("objective.overlong.penalty", self.penalty, 0)


@dataclass
class Kl:
    """A price on leaving the reference, which is an input of the step. Estimators: joschu.net/blog/kl-approx.html."""

    coefficient: float = 0.0  # 0: no reference is needed
    estimator: str = "k3"  # k1 | k2 | k3
    place: str = "loss"  # loss | reward

    def __post_init__(self) -> None:
        at_least("objective.kl.coefficient", self.coefficient, 0)
        one_of("objective.kl.estimator", self.estimator, "k1", "k2", "k3")
        one_of("objective.kl.place", self.place, "loss", "reward")


@dataclass
class Correction:
    """Weights for what the sampler computes otherwise than the trainer (Yao et al., fengyao.notion.site/off-policy-rl).

    truncate: the ratio within [low, high]; mask: 0 where the ratio is outside of them.
    """

    mode: str = "none"  # none | truncate | mask
    level: str = "token"  # token | sequence (the product of its tokens' ratios)
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        one_of("objective.correction.mode", self.mode, "none", "truncate", "mask")
        one_of("objective.correction.level", self.level, "token", "sequence")
        at_least("objective.correction.low", self.low, 0)
        at_least("objective.correction.high", self.high, self.low)


@dataclass
class ObjectiveConfig:
    name: str = "grpo"  # one of KINDS, or one's own as module:function
    options: dict[str, Any] = field(default_factory=dict)  # of the one that is named
    advantage: Advantage = field(default_factory=Advantage)
    aggregation: str = "auto"  # auto | tokens | sequences | constant: what the summed loss is divided by
    length: int = 0  # of the aggregation `constant`: the tokens that every sequence counts as
    overlong: Overlong = field(default_factory=Overlong)
    kl: Kl = field(default_factory=Kl)
    correction: Correction = field(default_factory=Correction)
    entropy: float = 0.0  # what the entropy of the policy is rewarded with

    def __post_init__(self) -> None:
        at_least("objective.entropy", self.entropy, 0)
        at_least("objective.length", self.length, 0)
        one_of("objective.aggregation", self.aggregation, "auto", "tokens", "sequences", "constant")
        if self.name not in KINDS and not _FUNCTION.fullmatch(self.name):
            remedy = f"write one of {', '.join(KINDS)}, or module:function"
            raise UserError("is no objective", field="objective.name", value=self.name, remedy=remedy)
        self._check_use()
        if self.name in KINDS:
            self.resolved_options()

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.name, OWN)

    @property
    def baseline(self) -> str:
        return self.kind.baseline if self.advantage.baseline == "auto" else self.advantage.baseline

    @property
    def scale(self) -> str:
        return self.kind.scale if self.advantage.scale == "auto" else self.advantage.scale

    @property
    def aggregated(self) -> str:
        return self.kind.aggregation if self.aggregation == "auto" else self.aggregation

    def resolved_options(self) -> Any:
        """The options of a built-in objective with their defaults. Raises UserError for one that it does not have."""
        schema = self.kind.options
        known = [f.name for f in fields(schema)]
        for key in self.options:
            if key not in known:
                others = [name for name, kind in KINDS.items() if key in {f.name for f in fields(kind.options)}]
                whose = f" ({key} is an option of {', '.join(others)})" if others else ""
                raise UserError(
                    f"is no option of {self.name}{whose}", field=f"objective.options.{key}", value=self.options[key],
                    remedy=f"its options: {', '.join(known) or 'none'}",
                )  # fmt: skip
        try:
            return resolve(schema, self.options, where="objective.options")
        except UserError as problem:
            if problem.field and not problem.field.startswith("objective"):
                problem.field = f"objective.options.{problem.field}"
            raise

    def _check_use(self) -> None:
        """Refuse keys that the objective cannot heed."""
        if self.kind.whole and self.aggregation not in ("auto", self.kind.aggregation):
            raise UserError(
                f"{self.name} is a loss of whole sequences", field="objective.aggregation", value=self.aggregation,
                remedy=f"leave it at auto ({self.kind.aggregation})",
            )  # fmt: skip
        if self.aggregated == "constant" and not self.length:
            raise UserError(
                "is needed where the loss is divided by a constant", field="objective.length", value=0,
                remedy="give the most tokens that a sample may have",
            )  # fmt: skip
        if (self.baseline == "critic") != (self.name == "ppo"):
            raise UserError(
                "a critic is the baseline of ppo, and of nothing else", field="objective.advantage.baseline",
                value=self.advantage.baseline, remedy="leave it at auto",
            )  # fmt: skip
        if self.scale == "group" and self.baseline == "critic":
            raise UserError(
                "tokens have no group", field="objective.advantage.scale", value="group", remedy="set batch or none"
            )
        if not self.kind.samples:
            for key, unused in (
                ("kl.coefficient", self.kl.coefficient == 0),
                ("correction.mode", self.correction.mode == "none"),
                ("overlong.limit", self.overlong.limit == 0),
                ("advantage", self.advantage == Advantage()),
            ):
                if not unused:
                    raise UserError(
                        f"has no meaning for {self.name}, which learns from no reward", field=f"objective.{key}"
                    )
