"""A parser of text that is divided by markers: `<think>` … `</think>`, `<tool_call>` … `</tool_call>`.

Invariants: what comes out does not depend on how the text is cut into pieces; every character is reasoning, text,
part of a call, a marker, or a line break beside one. A call that cannot be read stays text, as it was written.
Text and reasoning come out as soon as no marker can begin in them; a call once it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from posttrain.llmm.tokens.parsers.events import Call, Event, ReasoningDelta, TextDelta

Schemas = Mapping[str, Mapping[str, Any]]  # name of a tool -> JSON schema of its parameters
Reader = Callable[[str, Schemas], list[Call] | None]  # None: this is no call


@dataclass(frozen=True)
class Section:
    """What stands between `open` and the first of `close` (none: to the end).

    `bare`: the opening is part of what is read and counts only where the answer's text begins with it.
    """

    kind: Literal["reasoning", "text", "calls"]
    open: str
    close: tuple[str, ...] = ()
    read: Reader | None = None
    bare: bool = False


class Parser:
    """`feed` pieces, then `finish`; each gives the events that are certain by then."""

    def __init__(self, sections: Sequence[Section], *, start: Section | None = None, schemas: Schemas | None = None):
        self._sections, self._schemas = tuple(sections), schemas or {}
        self._inside = start
        self._rest = ""  # not decided yet
        self._breaks = ""  # line breaks at the end of what was decided: they go where a marker follows
        self._trim = start is not None  # line breaks at the start of what comes next go
        self._said = False  # whether there was text

    def feed(self, piece: str) -> list[Event]:
        self._rest += piece
        events: list[Event] = []
        while self._advance(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """What was held back. The parser is used up."""
        events: list[Event] = []
        section, rest = self._inside, self._rest
        if section is not None and section.kind == "calls":
            self._close_calls(section, rest, "", events)
        else:
            self._say(rest, events, section)
        if section is None or section.kind != "reasoning":
            self._flush(events)
        return events

    def _advance(self, events: list[Event]) -> bool:
        """Decide what can be decided up to the next marker; False where more text is needed."""
        section = self._inside
        if section is None:
            return self._outside(events)
        found = first_of(self._rest, section.close)
        if found is None:
            if section.kind != "calls":
                self._say_safe(section.close, events)
            return False
        place, marker = found
        inner, self._rest = self._rest[:place], self._rest[place + len(marker) :]
        self._inside = None
        if section.kind == "calls":
            self._close_calls(section, inner, marker, events)
        else:
            self._say(inner, events, section)
            self._breaks, self._trim = "", True
        return True

    def _outside(self, events: list[Event]) -> bool:
        if not self._said and (bare := self._bare()):
            if isinstance(bare, Section):
                self._inside = bare
                return True
            return False  # blanks only, so far: what comes next decides
        opens = [section.open for section in self._sections if not section.bare]
        found = first_of(self._rest, opens)
        if found is None:
            self._say_safe(opens, events)
            return False
        place, marker = found
        self._say(self._rest[:place], events)
        self._rest = self._rest[place + len(marker) :]
        self._inside = next(section for section in self._sections if section.open == marker and not section.bare)
        if self._inside.kind != "calls":  # those may turn out to be text
            self._breaks, self._trim = "", True
        return True

    def _bare(self) -> Section | bool:
        """The section that the text begins with as it stands; True where that is open yet."""
        candidates = [section for section in self._sections if section.bare]
        text = self._rest.lstrip()
        for section in candidates:
            if text.startswith(section.open):
                return section
        return any(section.open.startswith(text) for section in candidates)

    def _close_calls(self, section: Section, inner: str, marker: str, events: list[Event]) -> None:
        calls = section.read(inner, self._schemas) if section.read else None
        if calls is None:
            opening = "" if section.bare else section.open
            self._trim = False
            self._say(opening + inner + marker, events)
        else:
            self._breaks, self._trim = "", True
            events += calls

    def _say_safe(self, markers: Sequence[str], events: list[Event]) -> None:
        """Say all but an end that may be the beginning of a marker."""
        keep = held_back(self._rest, markers)
        said, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
        self._say(said, events, self._inside)

    def _say(self, text: str, events: list[Event], section: Section | None = None) -> None:
        if self._trim:
            text = text.lstrip("\n")
        if not text:
            return
        self._trim = False
        text = self._breaks + text
        kept = text.rstrip("\n")
        self._breaks = text[len(kept) :]
        if not kept:
            return
        if section is not None and section.kind == "reasoning":
            events.append(ReasoningDelta(kept))
        else:
            self._said = True
            events.append(TextDelta(kept))

    def _flush(self, events: list[Event]) -> None:
        if self._breaks:
            events.append(TextDelta(self._breaks))
            self._breaks = ""


def first_of(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """The earliest marker, the longest of those that begin at one place."""
    found = [(text.find(marker), -len(marker), marker) for marker in markers if marker in text]
    if not found:
        return None
    place, _, marker = min(found)
    return place, marker


def held_back(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a marker."""
    longest = max(map(len, markers), default=0) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0
