"""What counts as the same text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.text import ngrams, signs, units, words


@pytest.mark.parametrize(
    ("left", "right"),
    [("What is 12+5?", "what  is 12 + 5 ?"), ("Ｗｈａｔ", "what"), ("cafe\u0301", "caf\u00e9"), ("a\nb", "a b")],
)
def test_spelling_that_says_the_same_has_the_same_units(left, right):
    assert units(left) == units(right)


@pytest.mark.parametrize(("left", "right"), [("12 + 5", "12 - 5"), ("1.5", "15"), ("f(x)", "f[x]"), ("1 2", "12")])
def test_what_differs_in_meaning_has_other_units(left, right):
    assert units(left) != units(right)


def test_signs_are_numbers_and_operators_but_no_hyphens():
    assert signs("A well-known sum: 12 - 5 = 1,000.5?") == ("12", "-", "5", "=", "1,000.5")


@given(text=st.text(max_size=40), n=st.integers(1, 5))
def test_ngrams_cover_every_word(text, n):
    sequence = words(text)
    assert {word for gram in ngrams(sequence, n) for word in gram} == set(sequence)
