"""gpt-oss's harmony format: messages of a header and a body, the header naming channel and recipient.

    <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>text<|return|>

Source of the format: OpenAI, "OpenAI harmony response format" (the cookbook's page on gpt-oss).
"""

from __future__ import annotations

import re

from posttrain.llmm.tokens.parsers.events import Call, Event, ReasoningDelta, TextDelta
from posttrain.llmm.tokens.parsers.readers import is_json
from posttrain.llmm.tokens.parsers.sections import first_of, held_back

_MESSAGE, _START = "<|message|>", "<|start|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", _START)
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


class HarmonyParser:
    """The same laws as `Parser`. The prompt ends in `<|start|>assistant`, so that a header comes first."""

    def __init__(self) -> None:
        self._rest, self._header = "", None

    _header: str | None  # None: it is being read

    def feed(self, piece: str) -> list[Event]:
        self._rest += piece
        events: list[Event] = []
        while self._advance(events):
            pass
        return events

    def finish(self) -> list[Event]:
        events: list[Event] = []
        if self._header is None:
            if self._rest and not self._rest.startswith(_START) and "<|" not in self._rest:
                events.append(TextDelta(self._rest))  # no header at all: plain text
        else:
            self._say(self._rest, events, whole=True)
        return events

    def _advance(self, events: list[Event]) -> bool:
        if self._header is None:
            header, found, rest = self._rest.partition(_MESSAGE)
            if found:
                self._header, self._rest = header, rest
            return bool(found)
        found_end = first_of(self._rest, _ENDS)
        if found_end is None:
            if not self._is_call():
                keep = held_back(self._rest, _ENDS)
                said, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
                self._say(said, events)
            return False
        place, marker = found_end
        self._say(self._rest[:place], events, whole=True)
        self._header, self._rest = None, self._rest[place + len(marker) :]
        return True

    def _is_call(self) -> bool:
        return bool(self._header and _RECIPIENT.search(self._header))

    def _say(self, body: str, events: list[Event], *, whole: bool = False) -> None:
        assert self._header is not None
        recipient = _RECIPIENT.search(self._header)
        if recipient and whole:
            if is_json(body):
                events.append(Call(recipient[1], body.strip()))
            else:
                events.append(TextDelta(body))
        elif body:
            events.append(ReasoningDelta(body) if "analysis" in self._header else TextDelta(body))
