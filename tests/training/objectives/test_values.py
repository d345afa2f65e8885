"""Value and gradient of every objective are those of its formula, written out in loops."""

from __future__ import annotations

import pytest
import torch

from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import Correction, Kl, ObjectiveConfig
from posttrain.training.objectives.kinds import KINDS
from tests.training.objectives import naive
from tests.training.objectives.support import SAMPLED, Batch, batch, config, gradients, outcome

LENGTHS = (4, 1, 7, 3, 2, 5)
NOISE = {"gspo": 1e-3}  # ratios of the size of its bounds


def assert_as_written_out(chosen: ObjectiveConfig, made: Batch, **extras) -> None:
    got, got_gradients, _ = outcome(build(chosen), made)
    wanted = naive.loss(chosen.name, made, **extras)
    torch.testing.assert_close(got, wanted.detach(), rtol=1e-11, atol=1e-13)
    for ours, theirs in zip(got_gradients, gradients(wanted, made), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", KINDS)
def test_an_objective_is_its_formula(name, seed):
    assert_as_written_out(config(name), batch(LENGTHS, seed=seed, noise=NOISE.get(name, 0.5)))


@pytest.mark.parametrize("name", KINDS)
def test_log_ratios_beyond_their_bound(name):
    """Of tokens, and of samples whose tokens' are within it."""
    for noise in (8.0, 40.0):
        made = batch(LENGTHS, seed=12, noise=noise)
        assert_as_written_out(config(name), made)
        if name in SAMPLED:
            correct = ("truncate", "sequence", 0.0, 1e9)
            assert_as_written_out(config(name, correction=Correction(*correct)), made, correct=correct)


@pytest.mark.parametrize("name", SAMPLED)
def test_without_an_old_policy_the_ratio_is_one_and_the_gradient_is_the_policys(name):
    made = batch(LENGTHS, seed=7).without("old_logprobs")
    assert_as_written_out(config(name), made)
    _, by_leaf, metrics = outcome(build(config(name)), made)
    assert by_leaf[0].abs().min() > 0
    if "ratio" in metrics:
        assert metrics["ratio"].total == metrics["ratio"].weight == sum(LENGTHS)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "ppo"])
def test_a_price_on_leaving_the_reference(name, estimator):
    assert_as_written_out(config(name, kl=Kl(0.3, estimator)), batch(LENGTHS, seed=8), kl=(0.3, estimator))


@pytest.mark.parametrize("name", ["gspo", "reinforce"])
def test_entropy_is_rewarded(name):
    assert_as_written_out(config(name, entropy=0.05), batch(LENGTHS, seed=9), entropy=0.05)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("name", SAMPLED)
def test_the_sampler_is_corrected_for(name, mode, level):
    made = batch(LENGTHS, seed=10)
    correction = Correction(mode, level, low=0.5, high=1.5)
    assert_as_written_out(config(name, correction=correction), made, correct=(mode, level, 0.5, 1.5))
    assert_as_written_out(
        config(name, correction=correction), made.without("old_logprobs"), correct=(mode, level, 0.5, 1.5)
    )


def test_labels_that_may_be_wrong():
    made = batch(LENGTHS, seed=11)
    chosen = config("dpo", options={"beta": 0.4, "label_smoothing": 0.1})
    wanted = naive.dpo(made, beta=0.4, smoothing=0.1)
    got, by_leaf, metrics = outcome(build(chosen), made)
    torch.testing.assert_close(got, wanted.detach(), rtol=1e-11, atol=0)
    torch.testing.assert_close(by_leaf[0], gradients(wanted, made)[0], rtol=1e-11, atol=1e-13)
    assert metrics["accuracy"].weight == 3


def test_the_clip_is_met_on_both_sides_in_these_tests():
    """So that the cases above cannot agree by never reaching a bound."""
    for name in ("grpo", "dapo", "gspo", "rloo", "ppo"):
        batches = [batch(LENGTHS, seed=seed, noise=NOISE.get(name, 0.5)) for seed in range(5)]
        shares = [float(outcome(build(config(name)), made)[2]["clipped"].total) for made in batches]
        assert 0 < sum(shares) < 5 * sum(LENGTHS), name
