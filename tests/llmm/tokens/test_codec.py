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


@pytest.mark.parametrize("name", ["chatml", "mistral"])
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30), st.data())
def test_a_token_belongs_to_the_piece_that_it_begins_in(name: str, text: str, data: st.DataObject):
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    ids, counts = codec(name).encode_in_pieces(text, [*ends, len(text)])
    assert ids == codec(name).encode(text)
    assert counts == sorted(counts) and counts[-1] == len(ids)
    offsets = codec(name).tokenizer.encode(text, add_special_tokens=False).offsets
    for end, count in zip(ends, counts, strict=False):
        assert all(start < end for start, stop in offsets[:count] if start < stop)
        assert all(start >= end for start, stop in offsets[count:] if start < stop)
