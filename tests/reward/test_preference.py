"""A preference model's score is the score that Transformers computes, the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from posttrain.models.tiny_tokenizer import build
from posttrain.reward.model import Status
from posttrain.reward.settings import RewardSettings
from tests.reward.conftest import Running


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("preference")
    tokenizer = build(512)
    tokenizer.save_pretrained(where)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_labels=1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(where)
    return where


def test_the_reward_is_the_models_logit_of_the_conversation(directory):
    running = Running(RewardSettings(preference_models={"tiny": str(directory)}))
    found = running.find("preference:tiny", "Four.", question="What is 2 + 2?")
    again = running.find("preference:tiny", "Four.", question="What is 2 + 2?")
    other = running.find("preference:tiny", "Five, I think.", question="What is 2 + 2?")
    bad = running.find("preference:tiny", "Four.")
    running.close()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "Four."}]
    tokens = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    with torch.inference_mode():
        expected = AutoModelForSequenceClassification.from_pretrained(directory)(torch.tensor([tokens])).logits.item()
    assert found.reward == pytest.approx(expected, rel=1e-5) and found.reward == again.reward != other.reward
    assert found.correct is None and bad.status is Status.invalid_answer
