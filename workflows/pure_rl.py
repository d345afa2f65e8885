"""The route `pure_rl`: reinforcement learning from the base model."""

from __future__ import annotations

from hera.workflows import Workflow

from workflows.config import Reinforced
from workflows.profile import Profile
from workflows.reinforced import build_reinforced


def build(config: Reinforced, profile: Profile, *, run: str | None = None) -> Workflow:
    """The workflow, called `run` or by a generated name."""
    return build_reinforced("pure_rl", config, profile, run=run)
