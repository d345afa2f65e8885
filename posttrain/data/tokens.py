"""How many tokens a conversation is in a model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from transformers import AutoTokenizer

from posttrain.data.schema import Message
from posttrain.data.track import Track, untracked

_AT_ONCE = 512


class CountTokens(Protocol):
    def __call__(self, conversations: Sequence[list[Message]], *, open_ended: bool) -> list[int]:
        """Tokens of each; with `open_ended` the assistant is to speak next, and its header counts."""


class TokenCounter:
    """Counts with the tokenizer and the chat template in a model's directory."""

    def __init__(self, model: Path, track: Track = untracked):
        self._tokenizer, self._track = AutoTokenizer.from_pretrained(model), track

    def __call__(self, conversations: Sequence[list[Message]], *, open_ended: bool) -> list[int]:
        counts: list[int] = []
        texts: list[str] = []
        for number, messages in enumerate(self._track(conversations, "count tokens", len(conversations)), 1):
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=open_ended)
            texts.append(str(text))
            if len(texts) == _AT_ONCE or number == len(conversations):
                counts += map(len, self._tokenizer(texts, add_special_tokens=False)["input_ids"])
                texts.clear()
        return counts
