"""Which samples are trained on: what holds for all samples and settings, and one case for each reason."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.select import Candidate, Reason, select
from posttrain.training.selection.staleness import Span

VERSION, WINDOW = 5, 2


def candidate(name: str, reward: float, *, group: str = "g", **changes) -> Candidate:
    plain = Candidate(name, group, reward, reward - 0.5, 10, False, [Span(VERSION, 10)])
    return plain._replace(**changes)


def chosen(candidates, *, seed: int = 0, **config):
    return select(candidates, SampleSelection(**config), version=VERSION, window=WINDOW, seed=seed)


candidates_of = st.lists(
    st.builds(
        Candidate,
        id=st.integers(0, 10**6).map(str),
        group=st.sampled_from("abcd"),
        reward=st.sampled_from([0.0, 0.5, 1.0, math.nan]),
        advantage=st.sampled_from([-1.0, 0.0, 1.0]),
        tokens=st.integers(0, 20),
        truncated=st.booleans(),
        spans=st.lists(st.builds(Span, st.integers(1, 7), st.integers(0, 3)), max_size=2),
    ),
    max_size=16,
    unique_by=lambda c: c.id,
)
configs = st.builds(
    SampleSelection,
    spread=st.booleans(),
    pass_rate=st.sampled_from([[0.0, 1.0], [0.2, 0.8]]),
    truncated=st.sampled_from(["keep", "drop"]),
    min_tokens=st.integers(1, 5),
    max_tokens=st.sampled_from([0, 10]),
    groups=st.integers(0, 3),
    per_group=st.integers(0, 3),
    negatives=st.sampled_from([0.0, 0.3, 1.0]),
    negative_weight=st.sampled_from([1.0, 0.5]),
)


@given(candidates_of, configs)
def test_each_sample_is_kept_or_left_out_for_one_reason(candidates, config):
    got = select(candidates, config, version=VERSION, window=WINDOW, seed=1)
    assert sorted([*got.kept, *got.left_out]) == list(range(len(candidates)))
    assert got.kept == sorted(got.kept) and len(got.weights) == len(got.kept)
    assert sum(got.counts.values()) == len(candidates) - len(got.kept)
    held = Counter(candidates[place].group for place in got.kept)
    assert not config.groups or len(held) <= config.groups
    assert not config.per_group or all(count <= config.per_group for count in held.values())
    for place, weight in zip(got.kept, got.weights, strict=True):
        sample = candidates[place]
        assert not math.isnan(sample.reward) and sample.tokens >= config.min_tokens
        assert all(VERSION - WINDOW <= span.version <= VERSION for span in sample.spans if span.tokens)
        assert weight == (config.negative_weight if sample.advantage < 0 else 1.0)


@given(candidates_of, configs, st.randoms(use_true_random=False))
def test_the_order_inside_of_groups_changes_nothing(candidates, config, chance):
    """Nor does that of groups, where not the first of them are taken."""
    shuffled, config = list(candidates), replace(config, groups=0)
    chance.shuffle(shuffled)

    def verdicts(some):
        got = select(some, config, version=VERSION, window=WINDOW, seed=1)
        return {some[p].id for p in got.kept}, {some[p].id: reason for p, reason in got.left_out.items()}

    assert verdicts(shuffled) == verdicts(candidates)


@pytest.mark.parametrize(
    ("change", "config", "reason"),
    [
        ({"reward": math.nan}, {}, Reason.unscored),
        ({"spans": [Span(6, 1)]}, {}, Reason.ahead),
        ({"spans": [Span(2, 1), Span(5, 9)]}, {}, Reason.stale),
        ({"truncated": True}, {"truncated": "drop"}, Reason.truncated),
        ({"tokens": 0}, {}, Reason.too_short),
        ({"tokens": 30}, {"max_tokens": 29}, Reason.too_long),
    ],
)
def test_a_sample_that_is_left_out_leaves_its_group_as_it_was(change, config, reason):
    group = [candidate("a", 0.0), candidate("b", 1.0)._replace(**change), candidate("c", 1.0)]
    got = chosen(group, **config)
    assert got.kept == [0, 2] and got.left_out == {1: reason}
    assert chosen([*group[:1], candidate("b", 1.0), *group[2:]], **config).kept == [0, 1, 2]


@pytest.mark.parametrize(
    ("rewards", "config", "reason"),
    [
        ((0.7, 0.7), {}, Reason.no_spread),
        ((0.7, 0.7), {"spread": False}, None),
        ((1.0, 0.0, 0.0, 0.0), {"pass_rate": [0.3, 1.0]}, Reason.too_hard),
        ((1.0, 0.0, 0.0, 0.0), {"pass_rate": [0.25, 1.0]}, None),
        ((1.0, 1.0, 0.0), {"pass_rate": [0.0, 0.5]}, Reason.too_easy),
        ((0.7, 0.0), {"passes_at": 0.6, "pass_rate": [0.5, 0.5]}, None),
    ],
)
def test_a_group_is_judged_as_a_whole_by_its_raw_rewards(rewards, config, reason):
    group = [candidate(str(i), reward, advantage=float(i)) for i, reward in enumerate(rewards)]
    got = chosen(group, **config)
    assert set(got.left_out.values()) == ({reason} if reason else set())
    assert len(got.kept) == (0 if reason else len(group))


def test_the_first_groups_that_pass_are_enough():
    equal = [candidate(f"e{i}", 1.0, group="equal") for i in range(2)]
    groups = [[candidate(f"{g}{r}", float(r), group=g) for r in (0, 1)] for g in "abc"]
    got = chosen([*equal, *groups[0], *groups[1], *groups[2]], groups=2)
    assert got.kept == [2, 3, 4, 5]
    assert got.counts == {Reason.no_spread: 2, Reason.surplus_group: 2}


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), min_size=3, max_size=8), st.integers(1, 4))
def test_of_a_group_those_are_kept_whose_rewards_differ_most(rewards, count):
    group = [candidate(str(i), reward) for i, reward in enumerate(rewards)]
    kept = chosen(group, spread=False, per_group=count).kept
    count = min(count, len(rewards))

    def variance(places) -> float:
        mean = sum(rewards[p] for p in places) / len(places)
        return sum((rewards[p] - mean) ** 2 for p in places)

    best = max(map(variance, combinations(range(len(rewards)), count)))
    assert len(kept) == count and variance(kept) == pytest.approx(best)


def test_a_share_of_the_low_rewards_stays_with_its_weight():
    samples = [candidate(f"n{i}", 0.0) for i in range(10)] + [candidate("p", 1.0)]
    got = chosen(samples, negatives=0.3, negative_weight=0.5)
    assert got.counts == {Reason.low_reward: 7} and 10 in got.kept
    assert sorted(got.weights) == [0.5, 0.5, 0.5, 1.0]
    assert chosen(samples, negatives=0.3, seed=1).kept != got.kept, "the seed says which"
    assert chosen(samples, negatives=0.3).kept == got.kept


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"pass_rate": [0.9, 0.1]}, "selection.pass_rate"),
        ({"pass_rate": [0.1]}, "selection.pass_rate"),
        ({"truncated": "maybe"}, "selection.truncated: is not known"),
        ({"min_tokens": 0}, "selection.min_tokens: must be at least 1"),
        ({"min_tokens": 5, "max_tokens": 4}, "selection.max_tokens: is less than min_tokens"),
        ({"negatives": 1.5}, r"selection.negatives: must lie in \[0, 1\]"),
    ],
)
def test_settings_that_make_no_sense_are_named(config, said):
    with pytest.raises(UserError, match=said):
        SampleSelection(**config)
