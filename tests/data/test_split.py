"""Laws of the split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.schema import Example
from posttrain.data.split import quotas, take


def row(number: int, tier: str) -> Example:
    return Example(f"r{number}", 0, "q", (), "a", "a", "exact", {}, tier)


ROWS = st.lists(st.sampled_from(["easy", "medium", "hard"]), min_size=1, max_size=40).map(
    lambda tiers: [row(n, tier) for n, tier in enumerate(tiers)]
)


@given(rows=ROWS, share=st.floats(0, 1), seed=st.integers(0, 5), order=st.randoms(use_true_random=False))
def test_counts_are_exact_sets_disjoint_and_order_does_not_matter(rows, share, seed, order):
    count = int(share * len(rows))
    chosen, rest = take(rows, count, seed)
    assert len(chosen) == count
    assert {r.id for r in chosen} | {r.id for r in rest} == {r.id for r in rows}
    assert len(chosen) + len(rest) == len(rows)
    mixed = list(rows)
    order.shuffle(mixed)
    assert take(mixed, count, seed) == (chosen, rest)


@given(rows=ROWS, share=st.floats(0, 1))
def test_every_tier_keeps_its_share_within_one_row(rows, share):
    count = int(share * len(rows))
    chosen, _ = take(rows, count, 0)
    for tier in ("easy", "medium", "hard"):
        exact = sum(r.tier == tier for r in rows) * count / len(rows)
        assert abs(sum(r.tier == tier for r in chosen) - exact) < 1


@given(old=st.integers(1, 30), new=st.integers(0, 10), first=st.integers(0, 10), second=st.integers(0, 10))
def test_adding_rows_moves_few_and_never_from_training_into_evaluation(old, new, first, second):
    first, second = min(first, old), min(second, old - min(first, old))

    def place(count: int) -> dict[str, int]:
        evaluation, rest = take([row(n, "easy") for n in range(count)], first, 7)
        validation, train = take(rest, second, 7)
        return {r.id: n for n, rows in enumerate((evaluation, validation, train)) for r in rows}

    before, after = place(old), place(old + new)
    moved = [r for r in before if before[r] != after[r]]
    assert all(after[r] > before[r] for r in moved)
    assert len(moved) <= 2 * new  # at most one leaves each of the two sets for every row that enters


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=5), st.data())
def test_quotas_add_up_and_never_exceed_a_size(sizes, data):
    total = sum(sizes.values())
    count = data.draw(st.integers(0, total))
    shared = quotas(sizes, count)
    assert sum(shared.values()) == count
    assert all(0 <= shared[name] <= size for name, size in sizes.items())


def test_more_rows_than_there_are_is_refused():
    with pytest.raises(ValueError, match="3 of 2 rows"):
        take([row(0, "easy"), row(1, "easy")], 3, 0)
