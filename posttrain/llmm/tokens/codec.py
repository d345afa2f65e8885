"""A tokenizer as the gateway needs it: exact ids of a text, exact text of ids, and text from ids as they come.

Invariants: special tokens are kept in the text, so that parsers see them; a stream of ids gives the same text as
all of them at once, and never half of a character, however the ids are cut into chunks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from posttrain.contract.digest import digest_bytes
from posttrain.errors import UserError

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # how vocabularies in the manner of SentencePiece spell bytes


class Codec:
    """Wraps a fast tokenizer. `special_tokens` are those that a chat template may name (bos_token, …)."""

    def __init__(self, tokenizer: Tokenizer, special_tokens: Mapping[str, Any] | None = None):
        self.tokenizer = tokenizer
        self.special_tokens = {
            name: str(text) for name, text in (special_tokens or {}).items() if isinstance(text, str)
        }
        self.specials = frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        self.byte_tokens = frozenset(i for i in map(tokenizer.token_to_id, _BYTES) if i is not None)
        self.digest = digest_bytes(tokenizer.to_str().encode())

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_in_pieces(self, text: str, ends: Sequence[int]) -> tuple[list[int], list[int]]:
        """Ids of the whole text, and for each of the characters `ends` (in order) the number of tokens that begin
        before it. The later bytes of a character begin where its first one does."""
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return encoded.ids, [_begun_before(encoded, end, len(text)) for end in ends]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def token_text(self, token: int) -> str:
        return self.tokenizer.decode([token], skip_special_tokens=False)

    def token_id(self, text: str) -> int | None:
        return self.tokenizer.token_to_id(text)

    def stream(self) -> TextStream:
        return TextStream(self)


def _begun_before(encoded: Encoding, end: int, length: int) -> int:
    """Blanks that a tokenizer leaves out belong to the token that follows them."""
    at, token = end, None
    while at < length and (token := encoded.char_to_token(at)) is None:
        at += 1
    if token is None:
        return len(encoded.ids)
    start, _ = encoded.token_to_chars(token) or (at, at)
    if start >= end:
        return token
    while token < len(encoded.ids) and (encoded.token_to_chars(token) or (end, end))[0] < end:
        token += 1
    return token


class TextStream:
    """Text of ids as they come. What later bytes may still change is held back: half a character, a run of bytes."""

    def __init__(self, codec: Codec):
        self._codec = codec
        self._window, self._shown = list[int](), 0  # ids, of which the first `_shown` are in the text already
        self._before = ""  # their text

    def feed(self, ids: Sequence[int]) -> str:
        """What the ids add to the text."""
        self._window += ids
        if not ids or self._window[-1] in self._codec.byte_tokens:
            return ""
        text = self._codec.decode(self._window)
        return "" if text.endswith("\ufffd") else self._show(text)

    def finish(self) -> str:
        """What was held back: a character cut off by the end, as it is decoded with all the rest."""
        return self._show(self._codec.decode(self._window))

    def _show(self, text: str) -> str:
        new = text[len(self._before) :]
        # The ids shown last stay as context: the first of a decoding may be written without its blank.
        self._window, self._shown = self._window[self._shown :], len(self._window) - self._shown
        self._before = self._codec.decode(self._window)
        return new


def load_codec(directory: Path, *, field: str = "model") -> Codec:
    """The tokenizer of a model directory in Hugging Face's layout. Raises UserError where it has no fast one."""
    file = directory / "tokenizer.json"
    if not file.is_file():
        remedy = "put a tokenizer.json into it (`PreTrainedTokenizerFast.save_pretrained` writes one)"
        raise UserError("has no tokenizer.json", field=field, value=str(directory), remedy=remedy)
    settings = directory / "tokenizer_config.json"
    named = json.loads(settings.read_text()) if settings.is_file() else {}
    specials = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in named.items()
        if name.endswith("_token") and value
    }
    return Codec(Tokenizer.from_file(str(file)), specials)
