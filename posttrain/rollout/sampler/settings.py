"""Settings of the sampler. Imports nothing heavy: the step's spec is made of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UserError
from posttrain.units import at_least, within

AGENTS = ("single", "tools", "react", "research")


@dataclass
class SamplingSettings:
    """Of the policy. The same temperature is the trainer's; 0 would sample nothing to learn from."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512  # sampled in one turn
    trajectory_tokens: int = 2048  # of a whole trajectory, prompt and observations included

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError("must be greater than 0", field="sampling.temperature", value=self.temperature)
        if not 0 < self.top_p <= 1:
            raise UserError("must be in (0, 1]", field="sampling.top_p", value=self.top_p)
        at_least("sampling.max_tokens", self.max_tokens, 1)
        at_least("sampling.trajectory_tokens", self.trajectory_tokens, self.max_tokens + 1)


@dataclass
class RepetitionSettings:
    """An answer whose end is one pattern of at most `pattern_tokens` tokens, `times` in a row, is ended there."""

    pattern_tokens: int = 64  # 0: never
    times: int = 8

    def __post_init__(self) -> None:
        at_least("repetition.pattern_tokens", self.pattern_tokens, 0)
        at_least("repetition.times", self.times, 2)


@dataclass
class AgentSettings:
    """How a trajectory is made. `name` is one of AGENTS, or `module:Class` of your own (see docs/rl.md)."""

    name: str = "single"
    max_turns: int = 8
    tool_seconds: float = 30.0  # a tool call may take; it nests in `trajectory_seconds`
    trajectory_seconds: float = 600.0
    settings: dict[str, Any] = field(default_factory=dict)  # of an agent of your own

    def __post_init__(self) -> None:
        if self.name not in AGENTS and ":" not in self.name:
            remedy = f"write {', '.join(AGENTS)}, or module:Class"
            raise UserError("is no agent", field="agent.name", value=self.name, remedy=remedy)
        at_least("agent.max_turns", self.max_turns, 1)
        if not 0 < self.tool_seconds <= self.trajectory_seconds:
            remedy = "a tool call is part of a trajectory: give it less time, or the trajectory more"
            raise UserError(
                f"must be greater than 0 and at most agent.trajectory_seconds ({self.trajectory_seconds:g})",
                field="agent.tool_seconds", value=self.tool_seconds, remedy=remedy,
            )  # fmt: skip


@dataclass
class AdmissionSettings:
    """When a group may begin. `max_staleness` and `groups_per_update` are the trainer's own."""

    max_staleness: int = 1
    groups_per_update: int = 16
    group_size: int = 8
    buffer_groups: int = 0  # that may wait in the stream; 0: what the staleness bound allows
    block: int = 4  # updates' worth of groups that are put in order of length together; 0: never
    concurrency: int = 64  # trajectories at once; fewer while the engine's cache is full
    least_concurrency: int = 8
    cache_high: float = 0.9  # share of the KV cache in use above which fewer are at once
    retries: int = 2  # of a trajectory whose engine, tool or verdict failed by no fault of the policy

    def __post_init__(self) -> None:
        for name, least in (
            ("max_staleness", 0), ("groups_per_update", 1), ("group_size", 1), ("buffer_groups", 0), ("block", 0),
            ("least_concurrency", 1), ("retries", 0),
        ):  # fmt: skip
            at_least(f"admission.{name}", getattr(self, name), least)
        at_least("admission.concurrency", self.concurrency, self.least_concurrency)
        within("admission.cache_high", self.cache_high, 0, 1)
