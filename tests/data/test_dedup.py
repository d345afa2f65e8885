"""Laws of duplicate removal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.data import dedup
from posttrain.data.config import Dedup
from posttrain.data.schema import Example
from posttrain.data.text import ngrams, signs, words


def example(number: int, question: str, answer: str = "1") -> Example:
    prompt = ({"role": "user", "content": question},)
    return Example(str(number), 0, question, prompt, answer, answer, "exact", {})


# Few words and many rows, so that duplicates of both kinds are common.
SENTENCE = st.lists(st.sampled_from(["red", "blue", "cat", "Dog", "runs", "7", "8", "+", "?"]), min_size=1, max_size=9)
ROWS = st.lists(SENTENCE.map(" ".join), max_size=25).map(lambda texts: [example(n, t) for n, t in enumerate(texts)])
CONFIG = st.builds(Dedup, threshold=st.sampled_from([0.5, 0.8]), shingle=st.sampled_from([1, 2]),
                   distinguish_numbers=st.booleans(), permutations=st.just(32))  # fmt: skip


@given(ROWS)
def test_exact_keeps_the_first_of_each_and_names_it(rows):
    kept, removed = dedup.exact(rows)
    assert len({dedup.units(row.question) for row in kept}) == len(kept)
    assert [row.id for row in kept] == sorted((row.id for row in kept), key=int)
    by_id = {row.id: row for row in rows}
    assert len(kept) + len(removed) == len(rows)
    for gone in removed:
        assert int(gone.matched) < int(gone.id)
        assert dedup.units(by_id[gone.matched].question) == dedup.units(by_id[gone.id].question)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, config=CONFIG)
def test_near_is_idempotent_and_removes_only_what_is_alike(rows, config):
    kept, removed = dedup.near(rows, config)
    assert dedup.near(kept, config) == (kept, [])
    by_id = {row.id: row for row in rows}
    assert {row.id for row in kept} | {gone.id for gone in removed} == set(by_id)
    for gone in removed:
        first, second = by_id[gone.matched], by_id[gone.id]
        assert first in kept
        assert int(gone.matched) < int(gone.id)
        grams = [ngrams(words(row.question), config.shingle) for row in (first, second)]
        assert dedup.jaccard(*grams) >= config.threshold
        assert not config.distinguish_numbers or signs(first.question) == signs(second.question)


def test_near_finds_a_reworded_long_question_and_spares_other_numbers():
    text = "A farmer has {} sheep and sells {} of them at the market on a rainy Monday morning in June how many stay"
    rows = [example(0, text.format(12, 5)), example(1, text.format(12, 5) + " today"), example(2, text.format(12, 6))]
    kept, removed = dedup.near(rows, Dedup())
    assert [row.id for row in kept] == ["0", "2"]
    assert [(gone.id, gone.reason, gone.matched) for gone in removed] == [("1", "near_duplicate", "0")]
    assert len(dedup.near(rows, Dedup(distinguish_numbers=False, threshold=0.6))[0]) == 1


def test_a_duplicate_that_contradicts_is_named_so():
    _, removed = dedup.exact([example(0, "1 + 1", "2"), example(1, "1+1", "3"), example(2, "1 +1", "2")])
    assert [gone.reason for gone in removed] == ["duplicate_with_another_answer", "duplicate"]
