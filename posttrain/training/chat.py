"""Conversations to documents: token ids with a mask of the tokens that the model has to produce.

Invariants: the ids are those of the whole conversation as the tokenizer's chat template renders it; the
mask holds exactly the assistant's messages, each with the token that ends its turn. Where the template
marks generation spans they are taken; elsewhere `spans` finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from posttrain.errors import UserError
from posttrain.training.spans import Message, Span, assistant_spans

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True, eq=False)
class Document:
    """One conversation. `tokens` int32 [T]; `loss` bool [T], true where the token is to be produced.

    `signals` (float32 [P], one number for each of the P tokens with loss) is what an objective wants to know of them.
    """

    id: str
    tokens: np.ndarray
    loss: np.ndarray
    signals: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def loss_tokens(self) -> int:
        return int(self.loss.sum())

    def head(self, length: int) -> Document:
        loss = self.loss[:length]
        signals = {name: values[: int(loss.sum())] for name, values in self.signals.items()}
        return Document(self.id, self.tokens[:length], loss, signals)

    def with_signals(self, **signals: np.ndarray) -> Document:
        return replace(self, signals={**self.signals, **signals})


class Chat:
    """A tokenizer with its chat template. Raises UserError (field `model`) where it cannot render conversations."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, field: str = "model"):
        if not tokenizer.chat_template:
            raise UserError(
                "has no chat template, so that conversations cannot be rendered",
                field=field,
                value=tokenizer.name_or_path,
                remedy="put a chat_template.jinja beside its tokenizer, or take an instruct model",
            )
        if not tokenizer.is_fast:
            raise UserError(
                "has no fast tokenizer, so that tokens cannot be laid over text",
                field=field,
                value=tokenizer.name_or_path,
                remedy="put a tokenizer.json into its directory",
            )
        self._tokenizer = tokenizer
        self._marks_generation = bool(_GENERATION.search(str(tokenizer.get_chat_template())))
        specials = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._enders = specials | set(tokenizer.all_special_ids)

    def document(self, row_id: str, messages: Sequence[Message]) -> Document:
        """The conversation as tokens. Raises UserError where the template refuses it."""
        tokens, loss = self._from_template(messages) if self._marks_generation else self._by_spans(row_id, messages)
        loss[:1] = False  # nothing comes before the first token that could predict it
        return Document(row_id, np.asarray(tokens, np.int32), loss)

    def _render(self, messages: Sequence[Message], generation: bool) -> str:
        if not messages:
            return ""
        return str(
            self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=generation)
        )

    def _from_template(self, messages: Sequence[Message]) -> tuple[list[int], np.ndarray]:
        rendered: Any = self._tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return rendered["input_ids"], np.asarray(rendered["assistant_masks"], bool)

    def _by_spans(self, row_id: str, messages: Sequence[Message]) -> tuple[list[int], np.ndarray]:
        text, spans = assistant_spans(self._render, messages)
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        tokens, extents = encoded["input_ids"], _extents(encoded["offset_mapping"])
        loss = np.zeros(len(tokens), bool)
        for span in spans:
            end = self._end_of_turn(text, tokens, extents, span)
            loss |= (extents[:, 1] > span.start) & (extents[:, 0] < end)
        return tokens, loss

    def _end_of_turn(self, text: str, tokens: list[int], extents: np.ndarray, span: Span) -> int:
        """Where the turn ends: behind the special token that follows the message, blanks in between allowed."""
        inside = np.flatnonzero((extents[:, 0] >= (span.content_end or span.start)) & (extents[:, 1] <= span.limit))
        if span.content_end is None:
            enders = [i for i in inside if tokens[i] in self._enders]
            return int(extents[enders[-1], 1]) if enders else span.limit
        for i in inside:
            if tokens[i] in self._enders:
                return int(extents[i, 1])
            if text[extents[i, 0] : extents[i, 1]].strip():
                break
        return span.content_end


def _extents(offsets: list[tuple[int, int]]) -> np.ndarray:
    """The characters [N, 2] that each token covers, so that the tokens tile the text.

    A tokenizer may leave blanks out of its offsets, and gives the bytes of one character the same ones.
    """
    extents, reached = np.zeros((len(offsets), 2), np.int64), 0
    for index, (start, end) in enumerate(offsets):
        extents[index] = min(start, reached), max(end, reached)
        reached = max(end, reached)
    return extents


def read_messages(text: str, *, row_id: str) -> list[Message]:
    """The messages of a prepared row (a JSON list of {role, content}). Raises UserError naming the row."""
    try:
        messages = json.loads(text)
        good = isinstance(messages, list) and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in messages
        )
    except json.JSONDecodeError:
        good = False
    if not good or not messages:
        raise UserError(f"row {row_id} holds no list of {{role, content}}", field="messages", value=text[:80])
    return messages
