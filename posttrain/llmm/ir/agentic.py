"""Level `agentic`: a trajectory. Turns with what the agent saw and what it said, sub-agents, the outcome.

Invariants: turns stand in the order of their calls, and a turn goes on from an earlier one (`parent`) or begins a
history of its own; the messages of a call are those of its line of parents followed by what is new. So an edited
history is a fork, a turn without its neighbour as parent and with the reason why, and nothing is said twice.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from posttrain.llmm.ir.chat import ChatRequest, ChatResponse, Choice, Message
from posttrain.llmm.ir.origin import Residual
from posttrain.llmm.ir.tokens import Tokens

Status = Literal["finished", "truncated", "failed", "aborted", "interrupted"]


class Call(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One call of the model: the request without its messages, and the answer without its choices' first. `agent` is
    the sub-agent that called; None where it was the run's own."""

    id: str
    dialect: str | None = None
    request: ChatRequest | None = None
    response: ChatResponse | None = None
    started: float | None = None  # seconds since 1970
    seconds: float | None = None
    policy: int | None = None  # version of the weights
    agent: str | None = None


class Copy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Message number `at` of the history as the client repeated it: it says the same in another form."""

    at: int
    message: Message


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`seen` is what is new since `parent` (None: since nothing): a prompt, tool results, a user's word. `said` is the
    model's answer, None where the call failed. `fork` says why an earlier turn's history did not go on here; `copies`
    are messages of the parent's history that the client repeated in another form."""

    index: int
    call: Call
    seen: tuple[Message, ...] = ()
    said: Choice | None = None
    parent: int | None = None
    fork: str | None = None
    copies: tuple[Copy, ...] = ()
    tokens: Tokens | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How it ended. A reward is there only where a verifier gave one."""

    status: Status
    reward: float | None = None
    details: dict[str, object] | None = None


class Trajectory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="trajectory"):
    """`group` holds samples of one task that are compared with each other. `children` are those of sub-agents;
    `spawned` is the id of the tool call that started this one, in its parent."""

    id: str
    turns: tuple[Turn, ...] = ()
    task: str | None = None
    group: str | None = None
    spawned: str | None = None
    children: tuple[Trajectory, ...] = ()
    outcome: Outcome | None = None
    started: float | None = None
    seconds: float | None = None
    residual: Residual | None = None
