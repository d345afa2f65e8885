"""Whose call it is: agents name their sessions and sub-agents in headers and in fields that say nothing to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from posttrain.llmm.ir.origin import Json

AGENTS = ("codex", "claude_code")


@dataclass(frozen=True)
class Session:
    """`agent` is its dialect. `id` names the session, `child` a sub-agent in it, `parent` what started that one (a
    thread's or an agent's id, or the session's), `role` what the sub-agent is for."""

    agent: str
    id: str | None
    child: str | None = None
    parent: str | None = None
    role: str | None = None
    version: str | None = None


def spawns(tool: str) -> bool:
    """Whether a known agent's tool of this name starts a sub-agent."""
    return any(import_module(f"posttrain.llmm.dialects.{name}").TOOLS.get(tool) == "spawn" for name in AGENTS)


def session(headers: Mapping[str, str], body: Json) -> Session | None:
    """The session of a known agent's call; None where no known agent sent it."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name in AGENTS:
        if (found := import_module(f"posttrain.llmm.dialects.{name}").session(lower, body)) is not None:
            return found
    return None
