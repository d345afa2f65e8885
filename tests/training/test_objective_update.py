"""An update by an objective on samples: rows, chunks and the sampler's temperature, entropies, and a critic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.training.batch import build_row
from posttrain.training.chat import Document
from posttrain.training.experience import pack_units
from posttrain.training.learner import NotFinite
from posttrain.training.loss import Scorer, entropy_of
from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import Correction, ObjectiveConfig
from tests.training.test_learner import corpus, learner, snapshot
from tests.training.test_loss import FAMILIES
from tests.training.test_loss import build as build_model

SIGNALS = ("advantages", "old_logprobs", "sampler_logprobs", "reference_logprobs", "old_values", "returns")


def objective(name: str, **settings):
    return build(ObjectiveConfig(name, **({"length": 20} if name == "dr_grpo" else {}), **settings))


@pytest.fixture(scope="module")
def documents(workspace, tmp_path_factory) -> list[Document]:
    """Samples with signals near those of the model, so that ratios are near 1."""
    plain = corpus(workspace, tmp_path_factory.mktemp("corpus"), count=8).documents
    row, chance = build_row(plain), np.random.default_rng(0)
    own = row.by_document(learner(workspace).score([row])[0].logprobs_P)

    def numbers(document: Document) -> dict[str, np.ndarray]:
        near = {name: own[document.id] + 0.1 * chance.standard_normal(document.loss_tokens) for name in SIGNALS[1:4]}
        free = {name: chance.standard_normal(document.loss_tokens) for name in ("old_values", "returns")}
        return {"advantages": np.full(document.loss_tokens, chance.standard_normal()), **near, **free}

    return [d.with_signals(**{k: v.astype(np.float32) for k, v in numbers(d).items()}) for d in plain]


def update(made, documents: list[Document], *, capacity: int):
    signals = sorted(made.objective.needs | {"old_logprobs"})
    packed = pack_units(documents, unit=made.objective.unit, capacity=capacity)
    return made.update(
        [build_row(row, signals=signals) for row in packed], number=1, learning_rate=1e-3,
        loss_tokens=sum(d.loss_tokens for d in documents), sequences=len(documents),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cross_entropy", "grpo", "gspo", "dpo"])
def test_rows_and_chunks_of_logits_change_neither_the_update_nor_what_is_reported(workspace, documents, name):
    chosen = objective(name, entropy=0.01)
    whole = update(learner(workspace, objective=chosen), documents, capacity=10**6)
    in_parts = update(learner(workspace, objective=chosen, logit_positions=7), documents, capacity=110)
    assert in_parts[:2] == pytest.approx(whole[:2], rel=1e-4)
    assert in_parts.metrics == pytest.approx(whole.metrics, rel=1e-4, abs=1e-6) and whole.metrics


def test_samples_of_the_policy_itself_have_ratios_of_one(workspace, documents):
    made = learner(workspace, objective=objective("grpo", correction=Correction("mask", high=1.5)))
    rows = [build_row(documents[:4]), build_row(documents[4:])]
    scored = [row.by_document(policy.logprobs_P) for row, policy in zip(rows, made.score(rows), strict=True)]
    own = {name: values for part in scored for name, values in part.items()}
    samples = [d.with_signals(old_logprobs=own[d.id], sampler_logprobs=own[d.id]) for d in documents]
    metrics = update(made, samples, capacity=110).metrics
    for name in ("ratio", "sampler_ratio", "effective_samples"):
        assert metrics[name] == pytest.approx(1, abs=1e-5)
    assert metrics["clipped"] == metrics["sampler_outside"] == 0 and metrics["sampler_gap"] < 1e-5


@pytest.mark.parametrize("entropy", ["measured", "trained"])
def test_log_probabilities_and_entropies_are_those_of_the_tempered_distribution(workspace, documents, entropy):
    module, row = learner(workspace).model.module, build_row(documents[:3])
    policy = Scorer(module, logit_positions=5, temperature=0.7, entropy=entropy)(row)
    logits_PV = module(
        row.tokens_1T, position_ids=row.positions_1T, cu_seq_lens_q=row.boundaries, cu_seq_lens_k=row.boundaries
    ).logits[0, row.predicts_P]
    tempered = torch.distributions.Categorical(logits=logits_PV / 0.7)
    torch.testing.assert_close(policy.logprobs_P, tempered.log_prob(row.targets_P), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.entropy_P, tempered.entropy(), rtol=1e-4, atol=1e-5)
    assert policy.entropy_P.requires_grad == (entropy == "trained")


def test_a_token_that_cannot_be_drawn_adds_nothing_to_the_entropy_or_its_gradient():
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    entropy = entropy_of(logits)
    entropy.sum().backward()
    assert entropy.item() == pytest.approx(np.log(2)) and logits.grad.isfinite().all()


def test_a_critic_learns_with_the_policy_and_is_not_part_of_what_is_stored(workspace, documents):
    made = learner(workspace, objective=objective("ppo", options={"value_coefficient": 1.0, "value_clip": 0.0}))
    errors = [update(made, documents, capacity=110).metrics["value_loss"] for _ in range(8)]
    assert errors[-1] < 0.9 * errors[0]
    assert "value_head.weight" in made.model.weights
    assert not [name for name, _ in made.model.finish(torch.float32).named_parameters() if "value_head" in name]


def test_an_advantage_that_is_not_finite_stops_the_update_and_changes_nothing(workspace, documents):
    made = learner(workspace, objective=objective("grpo"))
    spoiled = documents[5].with_signals(advantages=np.full(documents[5].loss_tokens, np.nan, np.float32))
    before = snapshot(made)
    with pytest.raises(NotFinite, match="no weight was changed"):
        update(made, [*documents[:5], spoiled], capacity=110)
    assert all(map(torch.equal, before, snapshot(made)))


def test_a_family_that_can_have_no_critic_is_named():
    model = build_model(FAMILIES["gemma2 with caps"])
    model.value_head = torch.nn.Linear(64, 1)
    with pytest.raises(UserError, match=r"gemma2 caps or scales its logits.*take an objective without a critic"):
        Scorer(model, logit_positions=8)
