"""How a batch is cut, dealt and ordered changes nothing: not the loss, not the gradient, not what is reported."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import Correction, Kl
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.objectives.tokens import reported
from tests.training.objectives.support import SAMPLED, batch, config, outcome


def objective(name: str):
    extras = {"kl": Kl(0.1), "correction": Correction("truncate", "sequence")} if name in SAMPLED else {}
    return build(config(name, entropy=0.01, **extras))


@st.composite
def cuts(draw, unit: int):
    """Lengths of sequences, and the sequences in any order cut into micro-batches, some of them empty."""
    units = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(1, 6), min_size=units * unit, max_size=units * unit))
    order = draw(st.permutations(range(units)))
    ends = sorted(draw(st.lists(st.integers(0, units), max_size=5)))
    bounds = [0, *ends, units]
    parts = [[unit * k + side for k in order[a:b] for side in range(unit)] for a, b in pairwise(bounds)]
    return lengths, parts


@pytest.mark.parametrize("name", KINDS)
def test_any_cut_into_micro_batches_in_any_order_is_the_whole(name):
    made = objective(name)

    @settings(max_examples=15)
    @given(cuts(made.unit), st.integers(0, 2**16))
    def holds(cut, seed):
        lengths, parts = cut
        numbers = batch(lengths, seed=seed)
        whole, in_parts = outcome(made, numbers), outcome(made, numbers, parts)
        torch.testing.assert_close(in_parts[0], whole[0], rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(in_parts[1], whole[1], rtol=1e-11, atol=1e-13)
        assert reported(in_parts[2]) == pytest.approx(reported(whole[2]), rel=1e-11, abs=1e-13)

    holds()
