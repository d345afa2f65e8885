"""The configuration of each route: one dataclass, with a section per step.

Invariant: a section's field is called as the step is, and its type is the step's own `Config`;
what a step can be told is therefore said in one place. Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.errors import UserError
from steps import cold_start, evaluate, export, gate, prepare_data, prepare_model, report, serve, sft, verify


@dataclass
class Sft:
    """Configuration of the route `sft`. `start` is the step that trains: sft or cold_start."""

    seed: int = 0
    start: str = "sft"
    prepare_model: prepare_model.SPEC.Config = field(default_factory=prepare_model.SPEC.Config)
    prepare_data: prepare_data.SPEC.Config = field(default_factory=prepare_data.SPEC.Config)
    sft: sft.SPEC.Config = field(default_factory=sft.SPEC.Config)
    cold_start: cold_start.SPEC.Config = field(default_factory=cold_start.SPEC.Config)
    evaluate: evaluate.SPEC.Config = field(default_factory=evaluate.SPEC.Config)
    gate: gate.SPEC.Config = field(default_factory=gate.SPEC.Config)
    export: export.SPEC.Config = field(default_factory=export.SPEC.Config)
    serve: serve.SPEC.Config = field(default_factory=serve.SPEC.Config)
    verify: verify.SPEC.Config = field(default_factory=verify.SPEC.Config)
    report: report.SPEC.Config = field(default_factory=report.SPEC.Config)

    def __post_init__(self) -> None:
        if self.start not in ("sft", "cold_start"):
            raise UserError("is no way to start", field="start", value=self.start, remedy="write sft or cold_start")
        if self.verify.port != self.serve.port:
            raise UserError("is not serve.port", field="verify.port", value=self.verify.port, remedy="set both")


@dataclass
class Evaluation:
    """Configuration of the route `evaluation`: one model, one evaluation set, again and again."""

    seed: int = 0
    schedule: str = "0 3 * * *"
    timezone: str = "Etc/UTC"
    prepare_model: prepare_model.SPEC.Config = field(default_factory=prepare_model.SPEC.Config)
    prepare_data: prepare_data.SPEC.Config = field(default_factory=prepare_data.SPEC.Config)
    evaluate: evaluate.SPEC.Config = field(default_factory=evaluate.SPEC.Config)
    report: report.SPEC.Config = field(default_factory=report.SPEC.Config)
