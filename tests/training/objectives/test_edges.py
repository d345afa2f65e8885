"""The edges: results are finite and those that the package's docstring states."""

from __future__ import annotations

import math

import pytest
import torch

from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import Correction, Kl
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.objectives.ratio import BOUND, LOWEST, log_ratio
from posttrain.training.objectives.tokens import reported
from tests.training.objectives.support import SAMPLED, SIGNALS, batch, config, outcome

CLIPPED = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "ppo": (0.2, 0.2), "dr_grpo": (0.2, 0.2), "rloo": (0.2, 0.2)}


def objective(name: str, **settings):
    return build(config(name, **settings))


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_without_tokens_has_loss_zero_and_no_gradient(name):
    for lengths in ((), (0, 0)):
        loss, by_leaf, metrics = outcome(objective(name), batch(lengths))
        assert loss == 0 and not any(part.any() for part in by_leaf)
        assert all(math.isfinite(value) for value in reported(metrics).values())


@pytest.mark.parametrize("name", KINDS)
def test_a_sequence_without_tokens_is_not_there(name):
    kept, padded = (3, 2, 1, 4), (3, 2, 1, 4, 0, 0)
    with_it, without = outcome(objective(name), batch(padded)), outcome(objective(name), batch(kept))
    torch.testing.assert_close(with_it[:2], without[:2], rtol=0, atol=0)


@pytest.mark.parametrize("name", KINDS)
def test_one_token(name):
    made = batch((1,) * KINDS[name].unit, seed=3)
    loss, by_leaf, _ = outcome(objective(name), made)
    assert loss.isfinite() and all(part.isfinite().all() for part in by_leaf)


@pytest.mark.parametrize("name", SAMPLED)
def test_without_an_advantage_nothing_is_learned_by_the_policy(name):
    made = batch((4, 2, 3))
    made = made.with_signals(advantages=torch.zeros_like(made.signals["advantages"]))
    _, by_leaf, _ = outcome(objective(name), made)
    assert not by_leaf[0].any()


@pytest.mark.parametrize("side", ["high", "low"])
@pytest.mark.parametrize("name", CLIPPED)
def test_a_ratio_exactly_at_the_bound_still_has_its_gradient(name, side):
    """and the next number beyond it has none."""
    low, high = CLIPPED[name]
    bound, sign = (1 + high, 1.0) if side == "high" else (1 - low, -1.0)
    at = torch.tensor(bound, dtype=torch.float64).log()
    while (at.exp() - bound) * sign > 0:
        at = torch.nextafter(at, -sign * torch.tensor(torch.inf, dtype=torch.float64))
    beyond = at
    while (beyond.exp() - bound) * sign <= 0:
        beyond = torch.nextafter(beyond, sign * torch.tensor(torch.inf, dtype=torch.float64))
    for log, learns in ((at, True), (beyond, False)):
        made = batch((1,))
        made.logprobs_P.data.copy_(log)
        made = made.with_signals(old_logprobs=torch.zeros(1).double(), advantages=torch.tensor([sign]).double())
        loss, by_leaf, metrics = outcome(objective(name, options={}), made)
        assert bool(by_leaf[0].any()) == learns == (not metrics["clipped"].total), log
        assert loss.isfinite()


def test_a_log_ratio_at_its_bound_has_its_gradient_and_beyond_has_none():
    new = torch.tensor([BOUND, -BOUND, BOUND + 1, -BOUND - 1], requires_grad=True)
    bounded = log_ratio(new, torch.zeros(4))
    assert bounded.tolist() == [BOUND, -BOUND, BOUND, -BOUND]
    bounded.sum().backward()
    assert new.grad.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_ratio_of_trainer_to_sampler_exactly_at_its_bounds_is_inside(level):
    made = batch((3, 2), seed=1)
    equal = made.with_signals(sampler_logprobs=made.signals["old_logprobs"])
    corrected = outcome(objective("dapo", correction=Correction("mask", level, low=1.0, high=1.0)), equal)
    assert corrected[2]["sampler_outside"].total == 0
    torch.testing.assert_close(corrected[:2], outcome(objective("dapo"), made)[:2], rtol=0, atol=0)


@pytest.mark.parametrize("impossible", ["logprobs", *(name for name in SIGNALS if name.endswith("logprobs")), "all"])
@pytest.mark.parametrize("name", [*SAMPLED, "dpo"])
def test_a_token_of_probability_zero_leaves_everything_finite(name, impossible):
    extras = {"kl": Kl(0.1), "correction": Correction("mask")} if name != "dpo" else {}
    made = batch((3, 2, 1, 4), seed=5)
    for signal in SIGNALS:
        if signal.endswith("logprobs") and impossible in (signal, "all"):
            made.signals[signal][4] = -torch.inf
    if impossible in ("logprobs", "all"):
        made.logprobs_P.data[4] = -torch.inf
    loss, by_leaf, metrics = outcome(objective(name, **extras), made)
    assert loss.isfinite() and all(part.isfinite().all() for part in by_leaf)
    assert all(math.isfinite(value) for value in reported(metrics).values())
    if impossible in ("logprobs", "all"):
        assert by_leaf[0][4] == 0, "no gradient for what cannot be produced"


@pytest.mark.parametrize("name", ["reinforce", "cispo", "topr"])
def test_an_impossible_token_counts_as_the_lowest_log_probability(name):
    made = batch((1,)).without("old_logprobs")
    made.logprobs_P.data.fill_(-torch.inf)
    made = made.with_signals(advantages=torch.ones(1).double())
    assert outcome(objective(name), made)[0] == -LOWEST


@pytest.mark.parametrize("name", KINDS)
def test_nan_stays_nan(name):
    made = batch((2, 2))
    made.logprobs_P.data[1] = torch.nan
    assert outcome(objective(name), made)[0].isnan()


def test_the_effective_sample_size_is_that_of_the_ratios():
    made = batch((4, 3), seed=2)
    ratios = (made.logprobs_P - made.signals["old_logprobs"]).detach().exp()
    _, _, metrics = outcome(objective("dapo"), made)
    assert reported(metrics)["effective_samples"] == pytest.approx(float(ratios.sum() ** 2 / (ratios**2).sum() / 7))


@pytest.mark.parametrize("name", KINDS)
def test_what_an_objective_needs_it_asks_for_by_name(name):
    made = objective(name, **({"correction": Correction("mask")} if name in SAMPLED else {}))
    whole = batch((2, 2))
    for signal in SIGNALS:
        if signal in made.needs:
            with pytest.raises(ValueError, match=f"needs {signal}, which"):
                outcome(made, whole.without(signal))
        else:
            outcome(made, whole.without(signal))
