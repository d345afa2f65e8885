"""The IR as JSON: `{"llmm": VERSION, "value": {"kind": …}}`, and back.

A version never changes the meaning of an older one's fields. New fields have defaults, so that an older document
is read as it is; a newer one is refused.
"""

from __future__ import annotations

import msgspec

from posttrain.errors import UserError
from posttrain.llmm.ir.agentic import Trajectory
from posttrain.llmm.ir.chat import ChatRequest, ChatResponse
from posttrain.llmm.ir.completion import Completion
from posttrain.llmm.ir.tokens import Tokens

VERSION = 1
Value = Trajectory | ChatRequest | ChatResponse | Completion | Tokens


class _Document(msgspec.Struct, frozen=True):
    llmm: int
    value: Value


class _Head(msgspec.Struct, frozen=True):
    llmm: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Document).decode
_decode_head = msgspec.json.Decoder(_Head).decode


def to_json(value: Value) -> bytes:
    """`value` as one JSON document on one line."""
    return _encode(_Document(VERSION, value))


def from_json(text: bytes | str) -> Value:
    """The value of a document. Raises UserError naming what is wrong and where."""
    try:
        version = _decode_head(text).llmm
        if version > VERSION:
            raise UserError("is of a newer version than this program reads", field="llmm", value=version)
        return _decode(text).value
    except msgspec.MsgspecError as problem:
        raise UserError(f"is no document of the IR: {problem}", field="llmm") from None
