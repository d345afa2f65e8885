"""Laws of the statistics: intervals hold, estimators are unbiased, the same seed gives the same numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posttrain.evaluation.statistics import clustered_share, paired_bootstrap, pass_at_k, wilson


@given(st.integers(1, 5000), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_agrees_with_scipy_and_holds_its_estimate(trials, data, confidence):
    successes = data.draw(st.integers(0, trials))
    ours = wilson(successes, trials, confidence)
    reference = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert ours.low == pytest.approx(reference.low, abs=1e-9)
    assert ours.high == pytest.approx(reference.high, abs=1e-9)
    assert 0 <= ours.low <= ours.value <= ours.high <= 1


def test_no_trials_say_nothing():
    assert wilson(0, 0)[1:] == (0.0, 1.0)
    assert clustered_share([], 1)[1:] == (0.0, 1.0)


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_mean_over_all_choices_of_k_samples(samples, data):
    successes, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    outcomes = [True] * successes + [False] * (samples - successes)
    chosen = [any(pick) for pick in itertools.combinations(outcomes, k)]
    assert pass_at_k(samples, successes, k) == pytest.approx(sum(chosen) / len(chosen))


def test_pass_at_k_stays_finite_for_many_samples():
    assert 0 < pass_at_k(100_000, 10, 1000) < 1
    with pytest.raises(ValueError, match="k must lie"):
        pass_at_k(4, 1, 5)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60))
def test_an_interval_over_clusters_lies_between_that_of_prompts_and_that_of_samples(successes):
    ours = clustered_share(successes, 8)
    widest = wilson(sum(successes) / 8, len(successes))
    narrowest = wilson(sum(successes), len(successes) * 8)
    assert widest.low - 1e-12 <= ours.low <= narrowest.low + 1e-12
    assert narrowest.high - 1e-12 <= ours.high <= widest.high + 1e-12


def test_samples_that_repeat_their_prompt_add_nothing():
    once, repeated = clustered_share([1, 0, 1, 1, 0] * 8, 1), clustered_share([4, 0, 4, 4, 0] * 8, 4)
    assert repeated == pytest.approx(once, abs=0.01)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50), st.integers(0, 1000))
def test_the_bootstrap_repeats_itself_and_turns_around(pairs, seed):
    before, after = zip(*pairs, strict=True)
    there = paired_bootstrap(before, after, seed=seed, resamples=500)
    assert there == paired_bootstrap(before, after, seed=seed, resamples=500)
    assert there.low <= there.value <= there.high
    back = paired_bootstrap(after, before, seed=seed, resamples=500)
    assert back.value == -there.value
    assert paired_bootstrap(before, before, seed=seed, resamples=500) == (0, 0, 0)


def test_the_bootstrap_interval_covers_the_truth_as_often_as_it_says():
    generator, hits, truth = np.random.default_rng(7), 0, 0.2
    for trial in range(300):
        before = generator.random(120) < 0.4
        after = np.where(generator.random(120) < 0.5, before, generator.random(120) < 0.8)
        estimate = paired_bootstrap(before, after, seed=trial, resamples=600)
        hits += estimate.low <= truth <= estimate.high
    assert 0.91 <= hits / 300 <= 0.99


def test_pairing_narrows_the_interval_where_prompts_differ_in_difficulty():
    generator = np.random.default_rng(3)
    before = generator.random(400) < 0.5
    after = before.copy()
    after[:20] = True
    paired = paired_bootstrap(before, after, seed=1)
    unpaired = math.sqrt(2 * 0.25 / 400) * 1.96
    assert paired.high - paired.low < unpaired


def test_unpaired_lists_are_refused():
    with pytest.raises(ValueError, match="paired"):
        paired_bootstrap([1], [1, 0], seed=0)
