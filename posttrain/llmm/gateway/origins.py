"""Where each message of a trajectory came from: its turn and call, who wrote it, and its place in the tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from posttrain.llmm import ir
from posttrain.llmm.gateway.journal import TurnTaken
from posttrain.llmm.ir.origin import Author, Origin

_AUTHORS: dict[str, Author] = {"system": "system", "developer": "developer", "user": "user", "tool": "tool"}


@dataclass(frozen=True)
class _End:
    """Of a turn: how many messages and ids there are up to it."""

    messages: int
    ids: int


def with_origins(taken: Sequence[TurnTaken]) -> list[ir.Turn]:
    """The turns, their messages with origins. Spans count in the tokens up to the end of the message's turn; a message
    that a template wrote in several places, or in none of its own, has the span around them, or none."""
    ends: list[_End] = []
    turns = []
    for entry in taken:
        turn = entry.turn
        before = _End(0, 0) if turn.parent is None else ends[turn.parent]
        places = _places(entry.new, before.ids)
        seen = tuple(
            msgspec.structs.replace(
                message,
                origin=Origin(
                    author=_AUTHORS.get(message.role, "model"), turn=turn.index, call=turn.call.id,
                    span=places.get(before.messages + number),
                ),
            )
            for number, message in enumerate(turn.seen)
        )  # fmt: skip
        sampled = before.ids + len(entry.new.ids)
        end = sampled + len(entry.ids)
        said = turn.said
        if said is not None:
            origin = Origin(author="policy", trainable=True, turn=turn.index, call=turn.call.id, span=(sampled, end))
            said = msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, origin=origin))
        ends.append(_End(before.messages + len(turn.seen) + 1, end))
        turns.append(msgspec.structs.replace(turn, seen=seen, said=said))
    return turns


def _places(new: ir.Tokens, shift: int) -> dict[int, tuple[int, int]]:
    """Message of the request -> its span."""
    places: dict[int, tuple[int, int]] = {}
    for span in new.spans:
        if span.message is not None and span.end > span.start:
            begin, _ = places.get(span.message, (span.start + shift, 0))
            places[span.message] = (begin, span.end + shift)
    return places
