"""Level `completion`: one text, with spans that say who wrote each piece and whether it may be trained on.

Invariants: spans are in order, do not overlap and tile the text; a span of the policy's that may be trained on
is text that the model sampled, never text that a template wrote around it.
"""

from __future__ import annotations

import msgspec

from posttrain.llmm.ir.origin import Author


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """[start, end) in characters of a completion, or in tokens of `Tokens`. `message` and `part` count within the
    chat that was rendered; `turn` and `call` as in `Origin`; `policy` is the version of the weights that sampled it."""

    start: int
    end: int
    author: Author
    trainable: bool = False
    message: int | None = None
    part: int | None = None
    turn: int | None = None
    call: str | None = None
    policy: int | None = None


class Completion(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="completion"):
    """`template` is the digest of the chat template that rendered it."""

    text: str
    spans: tuple[Span, ...]
    template: str | None = None


def tiles(spans: tuple[Span, ...], length: int) -> bool:
    """Whether `spans` are in order, without gap or overlap, and cover [0, length)."""
    reached = 0
    for span in spans:
        if span.start != reached or span.end < span.start:
            return False
        reached = span.end
    return reached == length
