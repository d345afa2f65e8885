"""The whole of it on a tiny model: it learns from true rewards, and from shuffled ones it does not.

16 symbols, 64 wide, 2 layers. The task is to name the larger of two digits and then to stop; a little supervised
training gets two thirds of it right. Sampling is Transformers in this process; the rest is the product's.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.training.batch import build_row
from posttrain.training.chat import Document
from posttrain.training.config import Training
from posttrain.training.experience import Sample, choose, pack_units
from posttrain.training.learner import Learner
from posttrain.training.model import load_model
from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.staleness import Span
from posttrain.training.strategy import SingleProcess

EQUALS, END, START = 10, 11, 12
PAIRS = [(a, b) for a in range(10) for b in range(10)]
ROW_TOKENS, GROUPS, SIZE = 2048, 16, 8


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """The model after a little supervised training."""
    path = tmp_path_factory.mktemp("start")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True, initializer_range=0.05,
        )
    ).save_pretrained(path)  # fmt: skip
    made, chance = learner(path, ObjectiveConfig("cross_entropy")), random.Random(0)
    for number in range(14):
        update(made, [document(str(p), p, [max(p), END]) for p in chance.sample(PAIRS, 50)], number, 3e-3)
    made.model.finish(torch.float32).save_pretrained(path)
    yield path
    torch.set_num_threads(threads)


def learner(path: Path, config: ObjectiveConfig) -> Learner:
    training = Training(dtype="float32", device="cpu", attention="sdpa", row_tokens=ROW_TOKENS)
    objective = build(config)
    return Learner(load_model(path, training, critic=objective.critic), training, SingleProcess(), objective=objective)


def document(name: str, pair: tuple[int, int], answer: list[int], **signals: np.ndarray) -> Document:
    tokens = [START, *pair, EQUALS, *answer]
    return Document(name, np.array(tokens, np.int32), np.arange(len(tokens)) >= 4, signals)


def update(made: Learner, documents: list[Document], number: int, rate: float = 1e-3) -> None:
    rows = pack_units(documents, unit=made.objective.unit, capacity=ROW_TOKENS)
    made.update(
        [build_row(row, signals=made.objective.needs) for row in rows], number=number, learning_rate=rate,
        loss_tokens=sum(d.loss_tokens for d in documents), sequences=len(documents),
    )  # fmt: skip


@torch.no_grad()
def answers(made: Learner, pairs: list[tuple[int, int]], chance: torch.Generator) -> list[list[int]]:
    """One sample each, at most two tokens."""
    model = made.model.module.eval()
    tokens = torch.tensor([[START, *pair, EQUALS] for pair in pairs])
    for _ in range(2):
        probabilities = model(input_ids=tokens).logits[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1, generator=chance)], 1)
    model.train()
    drawn = tokens[:, 4:].tolist()
    return [answer[: answer.index(END) + 1] if END in answer else answer for answer in drawn]


def accuracy(made: Learner) -> float:
    """Of ten samples of every task, at temperature 1."""
    drawn = answers(made, PAIRS * 10, torch.Generator().manual_seed(99))
    return float(np.mean([answer == [max(pair), END] for answer, pair in zip(drawn, PAIRS * 10, strict=True)]))


def reinforce(made: Learner, config: ObjectiveConfig, updates: int, *, shuffled: bool = False) -> None:
    chance, torch_chance = random.Random(0), torch.Generator().manual_seed(0)
    for number in range(updates):
        pairs = [pair for pair in chance.sample(PAIRS, GROUPS) for _ in range(SIZE)]
        drawn = answers(made, pairs, torch_chance)
        rewards = [float(answer == [max(pair), END]) for answer, pair in zip(drawn, pairs, strict=True)]
        if shuffled:
            chance.shuffle(rewards)
        samples = [
            Sample(document(str(i), pair, answer), str(pair), reward, [Span(number, len(answer))])
            for i, (pair, answer, reward) in enumerate(zip(pairs, drawn, rewards, strict=True))
        ]
        if made.objective.critic:
            row = build_row([sample.document for sample in samples])
            values = row.by_document(made.score([row])[0].values_P)
            samples = [replace(s, document=s.document.with_signals(old_values=values[s.document.id])) for s in samples]
        chosen = choose(samples, config, SampleSelection(), version=number, window=0, seed=0)
        if chosen.documents:
            update(made, chosen.documents, number)


def config_of(name: str) -> ObjectiveConfig:
    return ObjectiveConfig(name, length=2 if name == "dr_grpo" else 0)


def test_it_learns_from_rewards(start):
    made, config = learner(start, config_of("grpo")), config_of("grpo")
    before = accuracy(made)
    reinforce(made, config, 110)
    assert 0.5 < before < 0.75 and accuracy(made) > 0.95


def test_it_learns_nothing_from_shuffled_rewards(start):
    made, config = learner(start, config_of("grpo")), config_of("grpo")
    before = accuracy(made)
    reinforce(made, config, 40, shuffled=True)
    assert accuracy(made) < before


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.samples and name != "grpo"])
def test_every_objective_learns_from_rewards(start, name):
    made = learner(start, config_of(name))
    before = accuracy(made)
    reinforce(made, config_of(name), 110)
    assert accuracy(made) > before + 0.15


@pytest.mark.slow
def test_preferences_are_learned_without_rewards(start):
    """Pairs of a right and a wrong answer; the model that starts is the reference."""
    made, reference = (learner(start, config_of("dpo")) for _ in range(2))
    chance = random.Random(0)
    before = accuracy(made)
    for number in range(150):
        documents = []
        for pair in chance.sample(PAIRS, 40):
            wrong = chance.choice([digit for digit in range(10) if digit != max(pair)])
            documents += [document(f"{pair}+", pair, [max(pair), END]), document(f"{pair}-", pair, [wrong, END])]
        row = build_row(documents)
        own = row.by_document(reference.score([row])[0].logprobs_P)
        update(made, [d.with_signals(reference_logprobs=own[d.id]) for d in documents], number)
    assert accuracy(made) > before + 0.1
