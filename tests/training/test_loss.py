"""Packing, chunks and ranks change nothing but the time: losses and gradients are those of each document by itself.

Letters: T tokens of a row, P positions with loss.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

from posttrain.training import attention
from posttrain.training.batch import PackedRow, build_row
from posttrain.training.chat import Document
from posttrain.training.loss import Scorer
from posttrain.training.model import choose_attention

SHAPE = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig(**SHAPE),
    "qwen2": Qwen2Config(**SHAPE),
    "mistral with a window": MistralConfig(**SHAPE, sliding_window=8),
    "gemma2 with caps": Gemma2Config(
        **SHAPE, sliding_window=8, attn_logit_softcapping=5.0, final_logit_softcapping=3.0
    ),
}
ROUNDING = {"rtol": 2e-5, "atol": 2e-6}


def build(config, implementation: str = "auto"):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    model.set_attn_implementation(choose_attention(model, implementation, torch.device("cpu")))
    return model.train()


def documents(count: int = 9, seed: int = 0) -> list[Document]:
    chance = np.random.default_rng(seed)
    made = []
    for index in range(count):
        length = int(chance.integers(2, 40)) if index else 1
        made.append(Document(f"d{index}", chance.integers(1, 160, length, dtype=np.int32), chance.random(length) < 0.5))
    made[-1].loss[-1] = True
    return made


def loss_and_gradients(model, rows: list[PackedRow], *, logit_positions: int = 10**6):
    model.zero_grad()
    score = Scorer(model, logit_positions=logit_positions)
    total = torch.zeros(())
    for row in rows:
        loss = -score(row).logprobs_P.sum()
        loss.backward()
        total += loss.detach()
    return total, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def by_the_library(model, made: list[Document]):
    """Each document alone, through Transformers' own forward pass and eager attention."""
    reference = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32, attn_implementation="eager")
    reference.load_state_dict(model.state_dict())
    total = torch.zeros(())
    for document in made:
        labels = torch.from_numpy(np.where(document.loss, document.tokens, -100).astype(np.int64))
        if len(document) < 2 or not document.loss[1:].any():
            continue
        tokens = torch.from_numpy(document.tokens.astype(np.int64))[None]
        logits = reference(input_ids=tokens, use_cache=False).logits[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, labels[1:], reduction="sum", ignore_index=-100)
        loss.backward()
        total += loss.detach()
    return total, {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}


def assert_equal(left, right):
    torch.testing.assert_close(left[0], right[0], **ROUNDING)
    assert left[1].keys() == right[1].keys()
    for name, gradient in left[1].items():
        scale = float(right[1][name].abs().max()) + 1e-12
        torch.testing.assert_close(gradient / scale, right[1][name] / scale, **ROUNDING, msg=name)


@pytest.mark.parametrize(
    ("family", "implementation"), [*((family, "auto") for family in FAMILIES), ("llama", "sdpa"), ("llama", "eager")]
)
def test_packed_is_as_each_document_alone(family, implementation):
    model, made = build(FAMILIES[family], implementation), documents()
    assert_equal(loss_and_gradients(model, [build_row(made, multiple=16)]), by_the_library(model, made))


def test_the_fastest_attention_is_chosen_that_is_exact_for_the_family():
    names = {family: build(config).config._attn_implementation for family, config in FAMILIES.items()}
    assert names == {
        "llama": attention.NAME, "qwen2": attention.NAME, "mistral with a window": "sdpa", "gemma2 with caps": "eager",
    }  # fmt: skip


def test_attention_by_documents_refuses_what_it_cannot_do():
    model = build(FAMILIES["mistral with a window"], "documents")
    with pytest.raises(NotImplementedError, match="sliding_window; set attention to sdpa"):
        Scorer(model, logit_positions=8)


def test_chunks_of_logits_change_nothing():
    model, rows = build(FAMILIES["llama"]), [build_row(documents())]
    assert_equal(loss_and_gradients(model, rows, logit_positions=7), loss_and_gradients(model, rows))


@pytest.mark.parametrize("implementation", ["documents", "sdpa"])
def test_padding_behind_the_last_boundary_is_read_by_nobody(implementation):
    model, row = build(FAMILIES["llama"], implementation), build_row(documents(), multiple=64)
    assert row.tokens < row.tokens_1T.shape[1]
    tokens = row.tokens_1T.clone()
    tokens[0, row.tokens :] = 159
    clean, spoiled = (loss_and_gradients(model, [r]) for r in (row, replace(row, tokens_1T=tokens)))
    assert torch.equal(clean[0], spoiled[0])
    assert all(torch.equal(clean[1][name], spoiled[1][name]) for name in clean[1])


def test_a_row_without_documents_gives_zero_and_takes_part_in_the_backward_pass():
    model = build(FAMILIES["llama"])
    total, gradients = loss_and_gradients(model, [build_row([])])
    assert total == 0 and gradients and not any(gradient.any() for gradient in gradients.values())


def test_the_same_row_gives_the_same_bits():
    torch.use_deterministic_algorithms(True)
    try:
        model, row = build(FAMILIES["llama"]).bfloat16(), build_row(documents(30))
        first, second = (loss_and_gradients(model, [row]) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
