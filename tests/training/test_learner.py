"""One update: the global normaliser, float32 weights under bfloat16, ranks, and what is not finite."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from posttrain.contract.progress import Progress
from posttrain.training.batch import build_row
from posttrain.training.chat import Chat, Document
from posttrain.training.config import Lora, Training
from posttrain.training.documents import build_corpus
from posttrain.training.learner import Learner, NotFinite, UpdateResult
from posttrain.training.model import load_model
from posttrain.training.objectives.build import CROSS_ENTROPY, Objective, build
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.tokens import Experience, Policy
from posttrain.training.packing import pack
from posttrain.training.strategy import SingleProcess, Strategy
from tests.training.support import ROOT, Workspace, sums

ODD = 110  # row capacity at which the documents below make an odd number of rows


def corpus(workspace: Workspace, tmp_path, count: int = 24):
    from transformers import AutoTokenizer

    chat = Chat(AutoTokenizer.from_pretrained(workspace.path / "models" / "tiny"))
    tmp_path.mkdir(exist_ok=True)
    return build_corpus(
        sums(count, seed=3), chat, sequence_length=64, overlong="error", field="train", progress=Progress(tmp_path)
    )


def learner(
    workspace: Workspace, strategy: Strategy | None = None, objective: Objective = CROSS_ENTROPY, **settings
) -> Learner:
    torch.manual_seed(0)
    config = Training(**({"dtype": "float32", "learning_rate": 1e-3, "device": "cpu", "threads": 1} | settings))
    model = load_model(workspace.path / "models" / "tiny", config, critic=objective.critic)
    return Learner(model, config, strategy or SingleProcess(), objective=objective)


def updates(made: Learner, rows, count: int = 3) -> list[tuple[float, float]]:
    tokens = sum(len(row.targets_P) for row in rows)
    size = {"loss_tokens": tokens, "sequences": sum(len(row.documents) for row in rows)}
    return [made.update(rows, number=n, **size, learning_rate=1e-3)[:2] for n in range(count)]


def reinforced(workspace: Workspace, documents: list[Document], strategy: Strategy) -> UpdateResult:
    """One update by GRPO on the documents as samples of which every second one was right."""
    samples = [
        document.with_signals(advantages=np.full(document.loss_tokens, (-1.0) ** index, np.float32))
        for index, document in enumerate(documents)
    ]
    packed = strategy.share(pack([len(d) for d in samples], range(len(samples)), capacity=ODD))
    made = learner(workspace, strategy, build(ObjectiveConfig("grpo")))
    return made.update(
        [build_row([samples[d] for d in row], signals=["advantages"]) for row in packed],
        number=1, loss_tokens=sum(d.loss_tokens for d in samples), sequences=len(samples), learning_rate=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("capacity", [64, 128, 10**6])
def test_how_an_update_is_cut_into_rows_does_not_change_it(workspace, tmp_path, capacity):
    documents = corpus(workspace, tmp_path).documents
    lengths = [len(document) for document in documents]

    def run(capacity: int) -> list[tuple[float, float]]:
        rows = pack(lengths, range(len(documents)), capacity=capacity)
        return updates(learner(workspace), [build_row([documents[d] for d in row]) for row in rows])

    for got, expected in zip(run(capacity), run(max(lengths)), strict=True):
        assert got == pytest.approx(expected, rel=1e-4)


def test_updates_too_small_for_bfloat16_are_not_lost(workspace, tmp_path):
    rows = [build_row(corpus(workspace, tmp_path).documents)]
    made = learner(workspace, dtype="bfloat16", clip=0.0)
    name = "model.layers.0.mlp.up_proj.weight"
    before = {n: weight.detach().clone() for n, weight in made.model.weights.items()}
    tokens = sum(len(row.targets_P) for row in rows)
    for number in range(4):
        made.update(rows, number=number, loss_tokens=tokens, sequences=24, learning_rate=1e-5)
    moved = made.model.weights[name] - before[name]
    computing = dict(made.model.module.named_parameters())[name]
    assert computing.dtype == torch.bfloat16 and made.model.weights[name].dtype == torch.float32
    assert torch.equal(computing, made.model.weights[name].bfloat16())
    large = before[name].abs() > 0.01  # where bfloat16's next value is more than 4e-5 away
    assert moved[large].abs().median() > 2e-5
    lost = before[name].bfloat16() + torch.tensor(1e-5).bfloat16()
    assert torch.equal(lost[large], before[name][large].bfloat16()), "the same step in bfloat16 would be lost"


def test_rotary_frequencies_keep_their_precision(workspace):
    frequencies = learner(workspace, dtype="bfloat16").model.module.model.rotary_emb.inv_freq
    assert frequencies.dtype == torch.float32
    assert torch.equal(frequencies, learner(workspace).model.module.model.rotary_emb.inv_freq)


def test_adapters_are_all_that_is_trained_and_are_merged_at_the_end(workspace, tmp_path):
    rows = [build_row(corpus(workspace, tmp_path).documents)]
    made = learner(workspace, lora=Lora(rank=4, alpha=8))
    assert made.model.weights and all("lora_" in name for name in made.model.weights)
    updates(made, rows, count=5)
    tokens = sum(len(row.targets_P) for row in rows)
    with_adapters = made.evaluate(rows, loss_tokens=tokens)
    merged = made.model.finish(torch.float32)
    assert not any("lora" in name for name, _ in merged.named_parameters())
    untouched = learner(workspace)
    assert with_adapters < untouched.evaluate(rows, loss_tokens=tokens) - 0.01
    untouched.model.module.load_state_dict(merged.state_dict())
    assert untouched.evaluate(rows, loss_tokens=tokens) == pytest.approx(with_adapters, rel=1e-5)


def test_recomputed_activations_give_the_same_update(workspace, tmp_path):
    rows = [build_row(corpus(workspace, tmp_path).documents)]
    assert updates(learner(workspace, recompute=True), rows) == updates(learner(workspace), rows)


def snapshot(made: Learner) -> list[torch.Tensor]:
    tensors = [tensor for tensor in made.state()["weights"].values()]
    tensors += [tensor for state in made.state()["optimizer"].values() for tensor in state.values()]
    return [tensor.clone() for tensor in [*tensors, *made.model.module.state_dict().values()]]


def test_a_loss_that_is_not_finite_names_its_samples_and_changes_nothing(workspace, tmp_path):
    documents = corpus(workspace, tmp_path).documents
    row = build_row(documents[:6])
    victim = int(row.document_P[20])

    def broken(policy: Policy, experience: Experience, *, armed: list[bool]) -> torch.Tensor:
        spoiled = armed[0] & (experience.sequence_P == victim)
        return -policy.logprobs_P * torch.where(spoiled, float("inf"), 1.0)

    armed = [False]
    made = learner(
        workspace, dtype="bfloat16", objective=Objective(broken, ObjectiveConfig("cross_entropy"), {"armed": armed})
    )
    updates(made, [build_row(documents)], count=1)
    before, armed[0] = snapshot(made), True
    size = {"loss_tokens": len(row.targets_P), "sequences": 6}
    with pytest.raises(NotFinite, match=r"at update 7, on samples .*no weight was changed"):
        made.update([row], number=7, **size, learning_rate=1e-3)
    after = snapshot(made)
    assert len(before) == len(after) and all(map(torch.equal, before, after))


def test_the_sample_whose_own_score_is_not_finite_is_the_one_that_is_named(workspace, tmp_path):
    documents = corpus(workspace, tmp_path).documents
    made = learner(workspace)
    first, victim = documents[0], documents[3]
    row = build_row([first, victim])
    own = next(token for token in victim.tokens.tolist() if token not in first.tokens.tolist())
    made.model.module.get_input_embeddings().register_forward_hook(  # a token that only this sample has
        lambda _, inputs, embedded: torch.where((inputs[0] == own)[..., None], float("nan"), embedded)
    )
    with pytest.raises(NotFinite, match=f"on sample {victim.id};"):
        made.update([row], number=1, loss_tokens=len(row.targets_P), sequences=2, learning_rate=1e-3)


def test_two_ranks_sum_to_what_one_process_does(workspace, tmp_path):
    documents = corpus(workspace, tmp_path).documents
    packed = pack([len(d) for d in documents], range(len(documents)), capacity=ODD)
    assert len(packed) % 2, "one rank is to have an empty row"
    rows = [build_row([documents[d] for d in row]) for row in packed]
    alone = learner(workspace)
    expected = [*updates(alone, rows), alone.evaluate(rows, loss_tokens=sum(len(row.targets_P) for row in rows))]
    by_samples = reinforced(workspace, documents, SingleProcess())
    assert by_samples.metrics["entropy"] > 0
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.ranks", str(workspace.path), str(tmp_path), str(rank)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    shown = [rank.communicate(timeout=110)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    for text in shown:
        losses, validation, (loss, norm, metrics) = json.loads(text)
        assert (loss, norm) == pytest.approx(by_samples[:2], rel=1e-4, abs=1e-6)
        assert metrics == pytest.approx(by_samples.metrics, rel=1e-4)
        for got, wanted in zip(losses, expected[:-1], strict=True):
            assert got == pytest.approx(list(wanted), rel=1e-4)
        assert validation == pytest.approx(expected[-1], rel=1e-4)
