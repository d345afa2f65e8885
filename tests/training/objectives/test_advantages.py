"""Rewards to advantages: formulas in loops, and what holds for all rewards."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.training.objectives.advantages import advantages, gae, overlong_penalty, standardised
from posttrain.training.objectives.config import Overlong

BASELINES, SCALES = ("group", "leave_one_out", "batch", "none"), ("group", "batch", "none")
REWARDS = [0.0, 0.1, 0.3, 1.0, -2.0, float("nan")]
rewards_of = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(REWARDS)), min_size=1, max_size=14)


def written_out(samples: list[tuple[str, float]], baseline: str, scale: str) -> list[float]:
    """The definition, number by number."""
    given_rewards = [(group, reward) for group, reward in samples if reward == reward]
    everyone = [reward for _, reward in given_rewards]
    made = []
    for place, (group, reward) in enumerate(samples):
        if reward != reward:
            made.append(float("nan"))
            continue
        mates = [r for i, (g, r) in enumerate(samples) if g == group and i != place and r == r]
        if baseline == "group":
            made.append(reward - statistics.fmean([reward, *mates]))
        elif baseline == "leave_one_out":
            made.append(reward - statistics.fmean(mates) if mates else 0.0)
        else:
            made.append(reward - statistics.fmean(everyone) if baseline == "batch" else reward)
    if scale == "batch" and len(everyone) > 1:
        spread = statistics.stdev([a for a in made if a == a])
        made = [a / (spread + 1e-4) for a in made]
    if scale == "group":
        for place, (group, _) in enumerate(samples):
            members = [r for g, r in given_rewards if g == group]
            if len(members) > 1:
                made[place] /= statistics.stdev(members) + 1e-4
    return made


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_advantages_are_their_definition(baseline, scale):
    @settings(max_examples=30)
    @given(rewards_of)
    def holds(samples):
        got = advantages(
            np.array([r for _, r in samples]), [g for g, _ in samples], baseline=baseline, scale=scale
        )  # fmt: skip
        np.testing.assert_allclose(got, written_out(samples, baseline, scale), rtol=1e-9, atol=1e-9)

    holds()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
def test_equal_rewards_and_groups_of_one_give_exactly_zero(baseline, scale):
    rewards = np.array([0.1, 0.1, 0.1, 0.7, 0.3])
    groups = ["equal"] * 3 + ["one", "another"]
    assert advantages(rewards, groups, baseline=baseline, scale=scale).tolist() == [0.0] * 5


@given(rewards_of, st.randoms(use_true_random=False))
def test_order_changes_nothing(samples, chance):
    order = list(range(len(samples)))
    chance.shuffle(order)

    def made(places):
        return advantages(
            np.array([samples[p][1] for p in places]), [samples[p][0] for p in places],
            baseline="leave_one_out", scale="batch",
        )  # fmt: skip

    np.testing.assert_allclose(made(order), made(range(len(samples)))[order], rtol=1e-12, atol=1e-12)


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), max_size=9), st.floats(0, 1), st.floats(0, 1))
def test_generalised_advantages_are_the_discounted_sum_of_surprises(steps, gamma, lam):
    rewards, values = np.array([r for r, _ in steps]), np.array([v for _, v in steps])
    made, returns = gae(rewards, values, gamma=gamma, lam=lam)
    following = [*values[1:], 0.0]
    for t in range(len(steps)):
        surprises = [rewards[k] + gamma * following[k] - values[k] for k in range(t, len(steps))]
        wanted = sum((gamma * lam) ** k * surprise for k, surprise in enumerate(surprises))
        assert made[t] == pytest.approx(wanted, abs=1e-9) and returns[t] == pytest.approx(wanted + values[t], abs=1e-9)


def test_standardised_numbers_have_mean_zero_and_spread_one():
    parts = standardised([np.array([1.0, 2.0]), np.array([np.nan]), np.array([6.0])])
    numbers = np.concatenate(parts)
    assert (
        np.isnan(numbers[2])
        and abs(np.nanmean(numbers)) < 1e-12
        and np.nanstd(numbers, ddof=1) == pytest.approx(1, rel=1e-3)
    )
    assert [part.tolist() for part in standardised([np.array([2.0, 2.0]), np.array([])])] == [[0.0, 0.0], []]


def test_a_long_sample_loses_more_the_nearer_it_is_to_the_limit():
    config = Overlong(limit=100, buffer=20, penalty=2.0)
    assert [overlong_penalty(length, config) for length in (10, 80, 85, 90, 100, 130)] == [0, 0, 0.5, 1.0, 2.0, 2.0]
    assert overlong_penalty(10**9, Overlong()) == 0
