"""What a parser finds, in the order in which it was said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class Call:
    """A whole call. `arguments` is JSON text: the model's own where it writes JSON. `id` only where it gives one."""

    name: str
    arguments: str
    id: str | None = None


Event = ReasoningDelta | TextDelta | Call


@dataclass(frozen=True)
class Parsed:
    """`parts` in order, neighbours of one kind joined."""

    parts: tuple[Event, ...]

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningDelta))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextDelta))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(part for part in self.parts if isinstance(part, Call))


def gather(events: Iterable[Event]) -> Parsed:
    """Deltas of one kind that follow each other as one part."""
    parts: list[Event] = []
    for event in events:
        last = parts[-1] if parts else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            parts[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            parts[-1] = ReasoningDelta(last.text + event.text)
        else:
            parts.append(event)
    return Parsed(tuple(parts))
