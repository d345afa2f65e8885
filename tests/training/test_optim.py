"""The learning rate over updates, and AdamW over float32 weights."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posttrain.training.config import Training
from posttrain.training.optim import build_optimizer, learning_rate, optimizer_state


@given(
    st.integers(1, 300), st.floats(0, 1), st.floats(0, 1), st.sampled_from(["cosine", "constant"]), st.floats(1e-7, 1)
)
def test_the_rate_rises_to_its_peak_and_never_rises_again(total, warmup, decay_to, schedule, peak):
    config = Training(learning_rate=peak, warmup=warmup, decay_to=decay_to, schedule=schedule)
    rates = [learning_rate(update, total, config) for update in range(total)]
    rise = min(round(warmup * total), total - 1)
    assert all(0 <= rate <= peak for rate in rates) and rates[0] > 0
    assert rates[:rise] == sorted(rates[:rise]) and rates[rise:] == sorted(rates[rise:], reverse=True)
    if round(warmup * total) < total:
        assert rates[rise] == peak


def test_the_cosine_is_halfway_between_in_its_middle():
    config = Training(learning_rate=2.0, warmup=0.0, decay_to=0.5)
    assert math.isclose(learning_rate(50, 100, config), 1.5)


def test_one_step_is_adamw_by_hand_and_decays_matrices_only():
    config = Training(learning_rate=0.1, weight_decay=0.5)
    config.adam.betas = [0.9, 0.99]
    weights = {"matrix": torch.nn.Parameter(torch.full((2, 2), 4.0)), "norm": torch.nn.Parameter(torch.full((2,), 4.0))}
    optimizer = build_optimizer(weights, config)
    for weight in weights.values():
        weight.grad = torch.full_like(weight, 3.0)
    optimizer.step()
    # The first step's corrected moments are the gradient and its square: it moves by the rate, whatever the gradient.
    assert weights["norm"].tolist() == pytest.approx([4 - 0.1] * 2)
    assert weights["matrix"].flatten().tolist() == pytest.approx([4 * (1 - 0.1 * 0.5) - 0.1] * 4)


def test_state_taken_before_the_first_step_is_the_state_that_the_first_step_starts_from():
    def trained(touch: bool) -> torch.Tensor:
        weights = {"w": torch.nn.Parameter(torch.ones(3))}
        optimizer = build_optimizer(weights, Training(learning_rate=0.1))
        if touch:
            optimizer_state(optimizer, weights)
        for _ in range(3):
            weights["w"].grad = torch.tensor([1.0, 2.0, 3.0])
            optimizer.step()
        return weights["w"].detach()

    assert torch.equal(trained(True), trained(False))
