"""One level down at a time: a chat to a text with spans, a text with spans to ids with spans.

Invariants: the text is the chat template's and the ids are the tokenizer's for that text; each span says which
message of the request it was written for, and by whom. Nothing of a prompt may be trained on: what the policy
sampled is put in by `history`, as ids.
"""

from __future__ import annotations

from posttrain.llmm import ir
from posttrain.llmm.ir.origin import Author
from posttrain.llmm.tokens.codec import Codec
from posttrain.llmm.tokens.messages import TemplateMessages
from posttrain.llmm.tokens.template import TEMPLATE, Rendering

_AUTHORS: dict[str, Author] = {"system": "system", "developer": "developer", "user": "user", "tool": "tool"}


def to_completion(rendering: Rendering, given: TemplateMessages, *, template: str | None = None) -> ir.Completion:
    """The rendering with the author of each piece. Assistant messages of a prompt are a `model`'s: whether the
    policy sampled them is not known here."""
    spans = []
    for piece in rendering.pieces:
        if piece.message == TEMPLATE:
            spans.append(ir.Span(piece.start, piece.end, "template"))
        else:
            author = _AUTHORS.get(given.messages[piece.message]["role"], "model")
            spans.append(ir.Span(piece.start, piece.end, author, message=given.sources[piece.message]))
    return ir.Completion(text=rendering.text, spans=tuple(spans), template=template)


def to_tokens(completion: ir.Completion, codec: Codec) -> ir.Tokens:
    """The ids of the text; a token that reaches over the border of two spans belongs to the one it begins in."""
    ids, ends = codec.encode_in_pieces(completion.text, [span.end for span in completion.spans])
    spans = [
        ir.Span(start, end, span.author, message=span.message)
        for span, start, end in zip(completion.spans, [0, *ends], ends, strict=False)
    ]
    return ir.Tokens(ids=tuple(ids), spans=tuple(spans), tokenizer=codec.digest)
