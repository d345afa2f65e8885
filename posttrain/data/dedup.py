"""Removing duplicates: exact ones by their units, near ones by MinHash.

Invariants: of a set of duplicates the first in the order of rows stays; removing again removes nothing;
the outcome depends on the rows and the configuration alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from datasketch import MinHash, MinHashLSH

from posttrain.data.config import Dedup
from posttrain.data.schema import Example, Removed
from posttrain.data.text import Grams, ngrams, signs, units, words
from posttrain.data.track import Track, untracked

Outcome = tuple[list[Example], list[Removed]]


def exact(examples: list[Example]) -> Outcome:
    """Rows whose questions have the same units. One that gives another answer is named so."""
    first: dict[tuple[str, ...], Example] = {}
    removed = []
    for example in examples:
        kept = first.setdefault(units(example.question), example)
        if kept is not example:
            reason = "duplicate" if kept.answer == example.answer else "duplicate_with_another_answer"
            removed.append(Removed(example.id, example.source, reason, kept.id))
    return list(first.values()), removed


def near(examples: list[Example], config: Dedup, track: Track = untracked) -> Outcome:
    """Rows whose word n-grams are alike (Jaccard) by at least the threshold.

    MinHash (Broder 1997) with locality-sensitive hashing finds the candidates; each is then compared by
    its n-grams, so that a removal is never a hash's mistake. Rows whose numbers and operators differ are no
    candidates where `distinguish_numbers` holds, since they are different problems in the same words.
    """
    keys = [signs(example.question) if config.distinguish_numbers else () for example in examples]
    sizes = Counter(keys)
    fitted = MinHashLSH(threshold=config.threshold, num_perm=config.permutations)  # takes a tenth of a second
    indexes: dict[tuple[str, ...], _Index] = defaultdict(lambda: _Index(config, (fitted.b, fitted.r)))
    kept, removed = [], []
    for example, key in track(zip(examples, keys, strict=True), "near duplicates", len(examples)):
        match = indexes[key].match_or_add(example) if sizes[key] > 1 else None
        if match is None:
            kept.append(example)
        else:
            removed.append(Removed(example.id, example.source, "near_duplicate", match.id))
    return kept, removed


class _Index:
    """The rows that stay, found again by likeness."""

    def __init__(self, config: Dedup, bands: tuple[int, int]):
        self._config, self._blank = config, MinHash(num_perm=config.permutations, seed=1)
        self._index = MinHashLSH(num_perm=config.permutations, params=bands)
        self._rows: list[tuple[Example, Grams]] = []

    def match_or_add(self, example: Example) -> Example | None:
        """The first row that `example` is like; None where there is none, and then it stays."""
        grams = ngrams(words(example.question), self._config.shingle)
        sketch = self._blank.copy()
        sketch.update_batch([" ".join(gram).encode() for gram in grams])
        for place in sorted(self._index.query(sketch)):
            other, theirs = self._rows[place]
            if jaccard(grams, theirs) >= self._config.threshold:
                return other
        self._index.insert(len(self._rows), sketch)
        self._rows.append((example, grams))
        return None


def jaccard(left: Grams, right: Grams) -> float:
    return len(left & right) / len(left | right)
