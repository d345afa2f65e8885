"""Cold start: what is chosen, and that the step trains on that and nothing else."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.training.cold_start import select
from posttrain.training.config import Selection
from tests.training.support import make_workspace, sums, table


def rows_of(tiers: list[str]) -> list[dict]:
    return [
        row | {"tier": tier, "id": f"r{i}"}
        for i, (row, tier) in enumerate(zip(sums(len(tiers), seed=1), tiers, strict=True))
    ]


def saying(text: str) -> dict:
    row = sums(1, seed=1)[0]
    messages = json.loads(row["messages"])
    return row | {"messages": json.dumps([messages[0], {"role": "assistant", "content": text}])}


tiers_of = st.lists(st.sampled_from(["easy", "medium", "hard"]), min_size=1, max_size=40)


@given(tiers_of, st.integers(0, 50), st.integers(0, 9))
def test_tiers_are_even_as_far_as_they_go(tiers, size, seed):
    rows = rows_of(tiers)
    chosen = select(rows, Selection(size=size), seed=seed, verify=lambda *_: True)
    there = Counter(tiers)
    assert len(chosen.rows) == (min(size, len(rows)) or len(rows))
    most = max(chosen.tiers.values())
    assert all(chosen.tiers[tier] >= most - 1 or chosen.tiers[tier] == there[tier] for tier in there) or size == 0
    assert chosen.rows == [row for row in rows if row in chosen.rows], "in the order of the table"
    assert sum(chosen.left_out.values()) == len(rows) - len(chosen.rows)
    assert chosen == select(rows, Selection(size=size), seed=seed, verify=lambda *_: True)


def test_without_balance_the_tiers_are_as_they_come():
    chosen = select(
        rows_of(["easy"] * 95 + ["hard"] * 5), Selection(size=50, balance=False), seed=0, verify=lambda *_: True
    )
    assert chosen.tiers["easy"] > 40


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        ("", {}, "too short or too long"),
        ("<answer>1</answer>" * 9, {"max_characters": 100}, "too short or too long"),
        ("fine \x07", {}, "unreadable characters"),
        ("broken \ufffd", {}, "unreadable characters"),
        ("again\nagain\nagain\nagain", {}, "repeats itself"),
        ("The answer is 3", {"required": r"<answer>\d+</answer>"}, "lacks what is required"),
        ("<answer>-77777</answer>", {}, "not verified"),
    ],
)
def test_what_is_not_good_enough_is_left_out_under_its_reason(text, settings, reason):
    from posttrain.training.cold_start import by_verifier

    rows = [saying(text) | {"id": "bad"}, *sums(3, seed=5)]
    chosen = select(rows, Selection(size=0, **settings), seed=0, verify=by_verifier)
    assert chosen.left_out == {reason: 1}
    assert len(chosen.rows) == 3


def test_nothing_good_enough_is_an_error_that_counts_the_reasons():
    with pytest.raises(UserError, match=r"lets none of 4 rows pass \(not verified: 4\)"):
        select(sums(4, seed=1), Selection(), seed=0, verify=lambda *_: False)


def test_the_step_trains_on_the_rows_that_it_chose(tmp_path):
    here = make_workspace(tmp_path / "w")
    mixed = table(here.path, "mixed", sums(40, seed=7) + sums(40, seed=8, wrong=True))
    code, said = here.run("r", {"selection": {"size": 24}, "epochs": 1}, step="cold_start", train=mixed)
    assert code == 0, said
    outputs = here.outputs("r", "cold_start")
    chosen = json.loads((here.path / outputs["selection"]).read_text())
    assert outputs["rows"] == len(chosen["rows"]) == 24
    assert chosen["tiers"] == {"easy": 12, "hard": 12}
    assert chosen["left_out"]["not verified"] == 40
    assert all(name.startswith("sum-7-") for name in chosen["rows"])
    assert 24 * 15 < outputs["tokens"] < 24 * 30
