"""Decontamination: no row of training asks what the evaluation asks.

A training question is contaminated by an evaluation question when

- their units are the same; or
- both have at least 2 n words, and of the word n-grams of the one with fewer, the share that the other has
  too is at least `overlap`. N-grams that more than the share `frame` of the evaluation rows have (and at least
  two of them) are the prompt's frame, which says nothing of the problem, and do not count.

Short questions are therefore compared as a whole: `4 - 1 =` and `4 - 2 =` are different problems. The
question is compared, never the template, the system prompt or the answer. The n-gram test follows Brown et
al. 2020 (appendix C), with a share in place of a single match.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from posttrain.data.config import Decontamination
from posttrain.data.schema import Example, Removed
from posttrain.data.text import Grams, ngrams, signs, units, words


@dataclass(frozen=True)
class Fingerprint:
    """What is compared. `grams` is empty for a short question."""

    units: tuple[str, ...]
    grams: Grams
    signs: tuple[str, ...]


def fingerprint(question: str, config: Decontamination) -> Fingerprint:
    sequence = words(question)
    grams = ngrams(sequence, config.n) if len(sequence) >= 2 * config.n else frozenset()
    return Fingerprint(units(question), grams, signs(question) if config.distinguish_numbers else ())


def frame(evaluation: Iterable[Fingerprint], share: float) -> Grams:
    """The n-grams of the prompt's frame."""
    rows = list(evaluation)
    counts = Counter(gram for row in rows for gram in row.grams)
    return frozenset(gram for gram, count in counts.items() if count > 1 and count > share * len(rows))


def overlaps(row: Fingerprint, other: Fingerprint, ignored: Grams, overlap: float) -> bool:
    """The definition above, for one pair."""
    if row.units == other.units:
        return True
    mine, theirs = row.grams - ignored, other.grams - ignored
    if not mine or not theirs or row.signs != other.signs:
        return False
    return len(mine & theirs) >= overlap * min(len(mine), len(theirs))


def decontaminate(
    train: list[Example], evaluation: list[Example], config: Decontamination
) -> tuple[list[Example], list[Removed]]:
    """The rows of `train` that no row of `evaluation` contaminates, and the others with the match's id.

    Linear in the rows: an index from n-gram to evaluation rows finds the pairs that share one.
    """
    prints = [fingerprint(example.question, config) for example in evaluation]
    ignored = frame(prints, config.frame)
    same = {row.units: place for place, row in reversed(list(enumerate(prints)))}
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(prints):
        for gram in row.grams - ignored:
            holders[gram].append(place)

    kept, removed = [], []
    for example in train:
        row = fingerprint(example.question, config)
        match = same.get(row.units)
        if match is None:
            candidates = sorted({place for gram in row.grams for place in holders.get(gram, ())})
            match = next((p for p in candidates if overlaps(row, prints[p], ignored, config.overlap)), None)
        if match is None:
            kept.append(example)
        else:
            removed.append(Removed(example.id, example.source, "in_evaluation", evaluation[match].id))
    return kept, removed
