"""Dialects: each vendor's interface to the chat level of the IR and back, requests, answers and streams of events.

Laws: what a dialect lifts it lowers again to the same JSON, up to the order of keys; a stream folds to what the whole
answer lifts to. `dialect(name)` gives one, `convert` crosses from one to another and lists what was lost.

A vendor's interface is a package: requests with their messages, content and tools, answers, the stream. An agent's own
form (`codex`, `claude_code`) is what it adds to its vendor's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from posttrain.errors import UserError
from posttrain.llmm.ir.chat import ChatRequest, ChatResponse
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.stream import Frame

NAMES = ("openai_chat", "openai_responses", "anthropic_messages", "google_genai", "codex", "claude_code")
SHORT = {"openai": "openai_chat", "responses": "openai_responses", "anthropic": "anthropic_messages",
         "google": "google_genai"}  # fmt: skip
_BASES = {"codex": "openai_responses", "claude_code": "anthropic_messages"}


@dataclass(frozen=True)
class Dialect:
    """One interface. `base` is the dialect whose words it uses: an agent's own form is its vendor's. `lifter` and
    `lowerer` make the two directions of one stream, event by event."""

    name: str
    base: str
    lift_request: Callable[[Json], ChatRequest]
    lower_request: Callable[[ChatRequest], Json]
    lift_response: Callable[[Json], ChatResponse]
    lower_response: Callable[[ChatResponse], Json]
    lifter: Callable[[], Any]
    lowerer: Callable[[], Any]

    def lift_stream(self, events: Iterable[Json]) -> Iterator[Frame]:
        lifter = self.lifter()
        yield from map(lifter.lift, events)
        if hasattr(lifter, "finish"):  # where the vendor marks no end
            yield lifter.finish()

    def lower_stream(self, frames: Iterable[Frame]) -> Iterator[Json]:
        lowerer = self.lowerer()
        for frame in frames:
            yield from lowerer.lower(frame)


@cache
def dialect(name: str) -> Dialect:
    """The dialect of this name, or of its short one. Raises UserError where there is none."""
    full = SHORT.get(name, name)
    if full not in NAMES:
        raise UserError("is no dialect", field="dialect", value=name, remedy=f"one of {', '.join((*NAMES, *SHORT))}")
    base = _BASES.get(full, full)
    parts = ("requests", "answers", "stream")
    requests, answers, stream = (import_module(f"posttrain.llmm.dialects.{base}.{part}") for part in parts)
    return Dialect(
        full, base, requests.lift_request, requests.lower_request, answers.lift_response, answers.lower_response,
        stream.Lifter, stream.Lowerer,
    )  # fmt: skip
