"""Plans of updates and rows: what holds for every list of lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.training.batch import build_row
from posttrain.training.chat import Document
from posttrain.training.packing import attention_groups, deal, epoch_order, pack, plan_epoch

lengths_of = st.lists(st.integers(1, 50), min_size=1, max_size=60)


def in_the_naive_way(lengths: list[int], capacity: int) -> list[list[int]]:
    """First-fit-decreasing as its definition reads."""
    rows: list[list[int]] = []
    for document in sorted(range(len(lengths)), key=lambda d: (-lengths[d], d)):
        for row in rows:
            if sum(lengths[d] for d in row) + lengths[document] <= capacity:
                row.append(document)
                break
        else:
            rows.append([document])
    return rows


@given(lengths_of, st.integers(50, 200))
def test_packing_is_first_fit_decreasing(lengths, capacity):
    assert pack(lengths, range(len(lengths)), capacity=capacity) == in_the_naive_way(lengths, capacity)


def test_a_document_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="document 1 of 9 tokens"):
        pack([3, 9], [0, 1], capacity=8)


@given(lengths_of, st.integers(1, 120), st.integers(0, 2**63), st.integers(0, 5))
def test_an_epoch_takes_every_document_once_within_the_budget(lengths, batch_tokens, seed, epoch):
    order = epoch_order(len(lengths), seed=seed, epoch=epoch, shuffle=True)
    plan = plan_epoch(lengths, order, epoch=epoch, batch_tokens=batch_tokens)
    taken = [d for update in plan for d in order[update.start : update.stop]]
    assert sorted(taken) == list(range(len(lengths)))
    for update in plan:
        assert (
            update.stop == update.start + 1
            or sum(lengths[d] for d in order[update.start : update.stop]) <= batch_tokens
        )
    assert order == epoch_order(len(lengths), seed=seed, epoch=epoch, shuffle=True)


def test_epochs_and_seeds_differ_in_their_order():
    orders = {tuple(epoch_order(50, seed=seed, epoch=epoch, shuffle=True)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4
    assert epoch_order(5, seed=0, epoch=3, shuffle=False) == [0, 1, 2, 3, 4]


@given(st.lists(st.integers(1, 9)), st.integers(1, 8))
def test_ranks_share_the_rows_and_have_as_many(lengths, world):
    rows = [[d] for d in range(len(lengths))]
    shares = [deal(rows, rank=rank, world=world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(row for share in shares for row in share if row) == rows


@given(lengths_of)
def test_attention_pads_no_more_than_a_quarter(lengths):
    groups = attention_groups(lengths)
    assert sorted(d for group in groups for d in group) == list(range(len(lengths)))
    for group in groups:
        assert max(lengths[d] for d in group) == lengths[group[0]]
        assert lengths[group[0]] ** 2 * len(group) <= 1.25 * sum(lengths[d] ** 2 for d in group)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), max_size=5), st.integers(1, 16))
def test_a_row_holds_documents_one_behind_another_and_zeros_behind_the_last(masks, multiple):
    documents = [
        Document(f"d{i}", np.arange(1, len(mask) + 1, dtype=np.int32) + 100 * i, np.array(mask))
        for i, mask in enumerate(masks)
    ]
    row = build_row(documents, multiple=multiple)
    width = row.tokens_1T.shape[1]
    assert width == max(-(-row.tokens // multiple), 1) * multiple
    assert row.positions_1T[0].tolist() == [p for mask in masks for p in range(len(mask))] + [0] * (width - row.tokens)
    assert row.tokens_1T[0, : row.tokens].tolist() == [t for document in documents for t in document.tokens]
    assert not row.tokens_1T[0, row.tokens :].any()
    wanted = [(i, t) for i, d in enumerate(documents) for t in d.tokens[1:][d.loss[1:]]]
    assert list(zip(row.document_P.tolist(), row.targets_P.tolist(), strict=True)) == wanted
    assert row.tokens_1T[0, row.predicts_P + 1].equal(row.targets_P)
