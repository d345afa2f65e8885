"""Text from ids as they come is the text of all of them, character by character."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.llmm.tokens.codec import Codec
from tests.training.templates import FAMILIES, tokenizer

BY_NAME = {family.name: family for family in FAMILIES}


@cache
def codec(name: str) -> Codec:
    return Codec(tokenizer(BY_NAME[name]).backend_tokenizer)


def streamed(name: str, ids: list[int], sizes: list[int]) -> list[str]:
    stream, pieces, at = codec(name).stream(), [], 0
    for size in [*sizes, len(ids)]:
        pieces.append(stream.feed(ids[at : at + size]))
        at += size
    return [*pieces, stream.finish()]


@given(st.sampled_from(["chatml", "mistral"]), st.lists(st.integers(0, 399), max_size=30), st.lists(st.integers(0, 4)))
def test_any_ids_in_any_chunks(name: str, ids: list[int], sizes: list[int]):
    """Also such as spell no UTF-8, which a model may sample."""
    assert "".join(streamed(name, ids, sizes)) == codec(name).decode(ids)


@pytest.mark.parametrize("name", ["chatml", "mistral"])
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="▁"), max_size=20))
def test_no_piece_holds_half_of_a_character(name: str, text: str):
    ids = codec(name).encode(text)
    pieces = streamed(name, ids, [1] * len(ids))
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == codec(name).decode(ids)


def test_a_character_cut_off_by_the_end_comes_last():
    ids = codec("chatml").encode("a😀")
    assert streamed("chatml", ids[:-1], [1] * len(ids))[-1] == "\ufffd"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30))
def test_extents_tile_the_text(text: str):
    for name in ("chatml", "mistral"):
        _, extents = codec(name).encode_with_places(text)
        assert [end for _, end in extents[:-1]] == [start for start, _ in extents[1:]]
