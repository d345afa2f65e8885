"""Cleaning of one row: what can be repaired is, what cannot is rejected with a reason.

Repairs: Unicode NFC, line ends, control characters, blanks at the ends. Cleaning what is clean
changes nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from posttrain.data.config import TIERS, Limits
from posttrain.data.schema import Raw, Rejected, to_json

_KEEP = frozenset("\n\t")
_REPLACEMENT = "\ufffd"  # stands where bytes could not be decoded


def tidy(text: str) -> str:
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    if not text.isprintable():
        text = "".join(c for c in text if c in _KEEP or (unicodedata.category(c) != "Cc" and c != "\ufeff"))
    return text.strip()


def clean(raw: Raw, limits: Limits) -> Raw | Rejected:
    """The repaired row, or `empty`, `undecodable`, `too_long`, `bad_tier`."""
    neat = replace(
        raw,
        question=tidy(raw.question),
        answer=tidy(raw.answer),
        system=tidy(raw.system),
        reasoning=tidy(raw.reasoning),
        messages=tuple({"role": m["role"], "content": tidy(m["content"])} for m in raw.messages),
    )
    texts = [m["content"] for m in neat.messages] or [neat.question]
    reason, detail = "", ""
    if not all(texts):
        reason, detail = "empty", "a message without text"
    elif not neat.answer:
        reason, detail = "empty", "an answer without text"
    elif any(_REPLACEMENT in text for text in [*texts, neat.answer]):
        reason, detail = "undecodable", "holds U+FFFD, which stands for bytes that were lost"
    elif (length := sum(map(len, [*texts, neat.answer, neat.system, neat.reasoning]))) > limits.characters:
        reason, detail = "too_long", f"{length} characters where {limits.characters} are allowed"
    elif neat.tier and neat.tier not in TIERS:
        reason, detail = "bad_tier", f"{neat.tier!r} is none of {', '.join(TIERS)}"
    if reason:
        return Rejected(raw.source, raw.place, reason, detail, content_of(raw))
    return neat


def content_of(raw: Raw) -> str:
    """What a rejected row held, as JSON."""
    return to_json({"question": raw.question, "answer": raw.answer, "messages": list(raw.messages)})
