"""Where an element of the IR came from, and what its level has no word for.

Invariants: all of the IR is plain immutable data: frozen `msgspec` structs of numbers, text, tuples and JSON
values, where a JSON object is never changed once it stands in the IR. A *residual* is what a dialect said and
the IR has no word for: wire keys with their values, kept under the dialect's name. It comes back in the same
dialect and is listed as lost in another one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Json = dict[str, Any]
Residual = dict[str, Json]  # {dialect: {wire key: value}}
Author = Literal["system", "developer", "user", "policy", "model", "tool", "environment", "template", "unknown"]
"""Who wrote it: `policy` is the model in training, `model` any other, `template` the chat template's own text."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Provenance of one element. `turn` counts the turns of a trajectory; `call` is a model call's or a tool
    call's id; `span` is (start, end) in the text or the tokens of the level above that it was made from;
    `trainable` says whether a loss may be taken on it."""

    author: Author = "unknown"
    trainable: bool = False
    turn: int | None = None
    call: str | None = None
    span: tuple[int, int] | None = None
