"""The route `cold_start_rl`: a cold start of few examples, then reinforcement learning."""

from __future__ import annotations

from hera.workflows import Workflow

from steps import cold_start
from workflows.config import ColdStart
from workflows.profile import Profile
from workflows.reinforced import build_reinforced


def build(config: ColdStart, profile: Profile, *, run: str | None = None) -> Workflow:
    """The workflow, called `run` or by a generated name."""
    return build_reinforced("cold_start_rl", config, profile, run=run, start=cold_start.SPEC)
