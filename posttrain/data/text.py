"""What two texts have in common: units, n-grams, and the signs that make two problems different.

A unit is a number, a run of letters or one other sign, casefolded, after Unicode's NFKC; so `12+5`
and `12 + 5` are the same three units.
"""

from __future__ import annotations

import re
import unicodedata

Grams = frozenset[tuple[str, ...]]

_UNIT = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d]+|[^\w\s]")
_SIGN = re.compile(r"\d+(?:[.,]\d+)*|[+*/=<>^%×÷−]|(?<![^\W\d])-|-(?![^\W\d])")
_PUNCTUATION = frozenset(".,;:!?'\"()[]{}…“”‘’`¿¡–—")


def units(text: str) -> tuple[str, ...]:
    """All units of the text, in order. Two texts are the same text where these are equal."""
    return tuple(_UNIT.findall(unicodedata.normalize("NFKC", text).casefold()))


def words(text: str) -> tuple[str, ...]:
    """The units without punctuation: what n-grams are made of."""
    return tuple(unit for unit in units(text) if unit not in _PUNCTUATION)


def signs(text: str) -> tuple[str, ...]:
    """The numbers and operators of the text in order; a hyphen inside a word is none."""
    return tuple(_SIGN.findall(unicodedata.normalize("NFKC", text)))


def ngrams(sequence: tuple[str, ...], n: int) -> Grams:
    """The set of `n`-grams; the whole sequence where it is shorter."""
    if len(sequence) <= n:
        return frozenset({sequence})
    return frozenset(sequence[start : start + n] for start in range(len(sequence) - n + 1))
