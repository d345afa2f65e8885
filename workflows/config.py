"""The configuration of each route: one dataclass, with a section per step.

Invariant: a section's field is called as the step is, and its type is the step's own `Config`;
what a step can be told is therefore said in one place. Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.engine.cron.schedule import Schedule
from posttrain.errors import UserError
from posttrain.units import within
from steps import (
    cold_start,
    etha,
    evaluate,
    export,
    gate,
    prepare_data,
    prepare_model,
    report,
    reward,
    rl,
    rollout,
    serve,
    sft,
    verify,
)


@dataclass
class Sft:
    """Configuration of the route `sft`. `start` is the step that trains: sft or cold_start."""

    seed: int = 0
    start: str = "sft"
    prepare_model: prepare_model.Config = field(default_factory=prepare_model.Config)
    prepare_data: prepare_data.Config = field(default_factory=prepare_data.Config)
    sft: sft.Config = field(default_factory=sft.Config)
    cold_start: cold_start.Config = field(default_factory=cold_start.Config)
    evaluate: evaluate.Config = field(default_factory=evaluate.Config)
    gate: gate.Config = field(default_factory=gate.Config)
    export: export.Config = field(default_factory=export.Config)
    serve: serve.Config = field(default_factory=serve.Config)
    verify: verify.Config = field(default_factory=verify.Config)
    report: report.Config = field(default_factory=report.Config)

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        if self.start not in ("sft", "cold_start"):
            raise UserError("is no way to start", field="start", value=self.start, remedy="write sft or cold_start")
        if self.verify.port != self.serve.port:
            raise UserError("is not serve.port", field="verify.port", value=self.verify.port, remedy="set both")


@dataclass
class Reinforced:
    """Configuration of the routes with reinforcement learning: `pure_rl` as it stands.

    `iterations` of `rl.updates` updates each, fewer where an iteration's last mean reward reaches `target` (0: none).
    What sampler and trainer must agree on is said once: `rl` tells it, and the sampler's own keys must be as it.
    """

    seed: int = 0
    iterations: int = 4
    target: float = 0.0
    prepare_model: prepare_model.Config = field(default_factory=prepare_model.Config)
    prepare_data: prepare_data.Config = field(default_factory=prepare_data.Config)
    evaluate: evaluate.Config = field(default_factory=evaluate.Config)
    reward: reward.Config = field(default_factory=reward.Config)
    rollout: rollout.Config = field(default_factory=rollout.Config)
    etha: etha.Config = field(default_factory=etha.Config)
    rl: rl.Config = field(default_factory=rl.Config)
    gate: gate.Config = field(default_factory=gate.Config)
    export: export.Config = field(default_factory=export.Config)
    serve: serve.Config = field(default_factory=serve.Config)
    verify: verify.Config = field(default_factory=verify.Config)
    report: report.Config = field(default_factory=report.Config)

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        within("iterations", self.iterations, 1, 99)
        sampler = self.rollout.admission
        for field_, value, other, wanted in (
            ("verify.port", self.verify.port, "serve.port", self.serve.port),
            ("rl.weights.port", self.rl.weights.port, "etha.port", self.etha.port),
            ("rl.rollout_port", self.rl.rollout_port, "rollout.port", self.rollout.port),
            ("rollout.sampling.temperature", self.rollout.sampling.temperature, "rl.temperature", self.rl.temperature),
            ("rollout.admission.max_staleness", sampler.max_staleness, "rl.max_staleness", self.rl.max_staleness),
            (
                "rollout.admission.groups_per_update", sampler.groups_per_update, "rl.groups_per_update",
                self.rl.groups_per_update,
            ),
        ):  # fmt: skip
            if value != wanted:
                raise UserError(f"is not {other} ({wanted})", field=field_, value=value, remedy="set both")


@dataclass
class Standard(Reinforced):
    """Configuration of the route `standard`: supervised training first."""

    sft: sft.Config = field(default_factory=sft.Config)


@dataclass
class ColdStart(Reinforced):
    """Configuration of the route `cold_start_rl`: a little supervised training of high quality first."""

    cold_start: cold_start.Config = field(default_factory=cold_start.Config)


@dataclass
class Evaluation:
    """Configuration of the route `evaluation`: one model, one evaluation set, again and again."""

    seed: int = 0
    schedule: str = "0 3 * * *"
    timezone: str = "Etc/UTC"
    prepare_model: prepare_model.Config = field(default_factory=prepare_model.Config)
    prepare_data: prepare_data.Config = field(default_factory=prepare_data.Config)
    evaluate: evaluate.Config = field(default_factory=evaluate.Config)
    report: report.Config = field(default_factory=report.Config)

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        try:
            Schedule(self.schedule)
        except ValueError as problem:
            remedy = "write five fields, as in 0 3 * * *"
            raise UserError(
                f"is no schedule: {problem}", field="schedule", value=self.schedule, remedy=remedy
            ) from None
        try:
            Schedule(self.schedule, self.timezone)
        except ValueError:
            remedy = "write one of tzdata's names, as in Europe/Berlin"
            raise UserError("is no time zone", field="timezone", value=self.timezone, remedy=remedy) from None


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 32:  # what every library that is seeded takes
        raise UserError("is no seed", field="seed", value=seed, remedy="write a whole number from 0 to 4294967295")
