"""The route `standard`: supervised fine-tuning, then reinforcement learning."""

from __future__ import annotations

from hera.workflows import Workflow

from steps import sft
from workflows.config import Standard
from workflows.profile import Profile
from workflows.reinforced import build_reinforced


def build(config: Standard, profile: Profile, *, run: str | None = None) -> Workflow:
    """The workflow, called `run` or by a generated name."""
    return build_reinforced("standard", config, profile, run=run, start=sft.SPEC)
