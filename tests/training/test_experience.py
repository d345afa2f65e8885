"""From samples with rewards to documents: advantages first and over whole groups, then the choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.training.batch import build_row
from posttrain.training.chat import Document
from posttrain.training.experience import Sample, choose, credit, pack_units
from posttrain.training.objectives.config import Kl, ObjectiveConfig, Overlong
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.select import Reason
from posttrain.training.selection.staleness import Span


def document(name: str, tokens: int = 3, **signals: float) -> Document:
    """A prompt of two tokens, and `tokens` that were produced."""
    loss = np.array([False, False] + [True] * tokens)
    numbers = {key: np.full(tokens, value, np.float32) for key, value in signals.items()}
    return Document(name, np.arange(len(loss), dtype=np.int32), loss, numbers)


def sample(
    name: str, reward: float, *, group: str = "g", tokens: int = 3, truncated: bool = False, **signals
) -> Sample:
    return Sample(document(name, tokens, **signals), group, reward, [Span(0, tokens)], truncated)


def chosen(samples, objective: ObjectiveConfig | None = None, **selection):
    settings = SampleSelection(**selection)
    return choose(samples, objective or ObjectiveConfig("dr_grpo", length=8), settings, version=0, window=0, seed=0)


def advantages(documents) -> dict[str, float]:
    return {d.id: float(d.signals["advantages"][0]) for d in documents}


def test_what_is_left_out_has_still_been_in_the_mean_of_its_group():
    samples = [sample("a", 1.0), sample("b", 0.0, truncated=True), sample("c", 0.0, truncated=True), sample("d", 1.0)]
    got = chosen(samples, truncated="drop")
    assert advantages(got.documents) == {"a": 0.5, "d": 0.5}
    assert got.selected.counts == {Reason.truncated: 2}


def test_spread_is_seen_in_raw_rewards_before_a_penalty_makes_some():
    samples = [sample("short", 1.0, tokens=2), sample("long", 1.0, tokens=8)]
    shaped = ObjectiveConfig("grpo", overlong=Overlong(limit=8, buffer=4))
    assert len({*advantages(credit(samples, shaped)).values()}) == 2
    assert chosen(samples, shaped).selected.counts == {Reason.no_spread: 2}


def test_a_sample_without_a_verdict_is_in_no_mean_and_is_not_trained_on():
    samples = [sample("a", 1.0), sample("b", 0.0), sample("lost", math.nan)]
    got = chosen(samples)
    assert advantages(got.documents) == {"a": 0.5, "b": -0.5}
    assert got.selected.counts == {Reason.unscored: 1}


def test_negatives_keep_their_weight():
    got = chosen([sample("a", 1.0), sample("b", 0.0)], negative_weight=0.25)
    assert advantages(got.documents) == {"a": 0.5, "b": -0.125}


@pytest.mark.parametrize("estimator", ["k1", "k2"])
def test_the_price_on_leaving_the_reference_is_taken_from_the_reward(estimator):
    samples = [
        sample("near", 1.0, old_logprobs=-1.0, reference_logprobs=-1.0),
        sample("far", 1.0, old_logprobs=-1.0, reference_logprobs=-2.0),
    ]
    objective = ObjectiveConfig("dr_grpo", length=8, kl=Kl(0.1, estimator, "reward"))
    paid = 0.1 * 3 * (1.0 if estimator == "k1" else 0.5)
    assert advantages(credit(samples, objective)) == pytest.approx({"near": paid / 2, "far": -paid / 2})


def test_a_critic_gets_advantages_and_returns_for_each_token():
    samples = [sample("a", 1.0, tokens=2, old_values=0.25), sample("b", 0.0, tokens=2, old_values=0.25)]
    objective = ObjectiveConfig("ppo", {"gamma": 1.0, "lam": 1.0})
    got = {d.id: d.signals for d in credit(samples, objective)}
    assert got["a"]["returns"].tolist() == [1.0, 1.0] and got["b"]["returns"].tolist() == [0.0, 0.0]
    together = np.concatenate([got["a"]["advantages"], got["b"]["advantages"]])
    assert together.mean() == pytest.approx(0, abs=1e-6) and together.std(ddof=1) == pytest.approx(1, rel=1e-3)
    paid = credit(
        [sample("a", 1.0, tokens=2, old_values=0.0, old_logprobs=-1.0, reference_logprobs=-2.0)],
        ObjectiveConfig("ppo", {"lam": 1.0}, kl=Kl(0.1, "k1", "reward")),
    )
    assert paid[0].signals["returns"] == pytest.approx([0.8, 0.9])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.sampled_from([1, 2]))
def test_what_belongs_together_is_packed_together(lengths, unit):
    documents = [document(str(i), tokens) for i, tokens in enumerate(lengths * unit)]
    rows = pack_units(documents, unit=unit, capacity=30)
    assert sorted(int(d.id) for row in rows for d in row) == list(range(len(documents)))
    for row in rows:
        assert sum(map(len, row)) <= 30
        for first, second in zip(row[0::unit], row[unit - 1 :: unit], strict=True):
            assert int(first.id) % unit == 0 and int(second.id) == int(first.id) + unit - 1


def test_signals_stand_at_the_positions_with_loss_of_a_row():
    gappy = Document("gappy", np.arange(5, dtype=np.int32), np.array([False, True, False, True, True]))
    parts = [
        gappy.with_signals(advantages=np.array([1, 2, 3], np.float32)),
        document("plain", 2, advantages=7.0),
    ]
    row = build_row(parts, multiple=16, signals=["advantages"])
    assert row.experience["advantages"].tolist() == [1, 2, 3, 7, 7]
    assert row.experience.sequence_P.tolist() == [0, 0, 0, 1, 1] and row.experience.sequences == 2
    cut = {name: values.tolist() for name, values in row.by_document(row.signals["advantages"]).items()}
    assert cut == {"gappy": [1, 2, 3], "plain": [7, 7]}
    assert build_row([], signals=["advantages"]).experience["advantages"].shape == (0,)
    assert gappy.with_signals(a=np.array([1, 2, 3], np.float32)).head(4).signals["a"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="2 numbers for 3 positions with loss"):
        build_row([gappy.with_signals(a=np.zeros(2, np.float32))], signals=["a"])
