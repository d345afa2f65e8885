"""A llama of a few layers with random weights: the same workflow in a minute, for tests and first looks.

Invariant: the same shape and seed give the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from posttrain.models import tiny_tokenizer
from posttrain.models.config import TinyShape


def build(target: Path, shape: TinyShape, seed: int) -> None:
    """Write a Hugging Face directory to `target`: safetensors (float32), tokenizer, chat template."""
    tokenizer = tiny_tokenizer.build(shape.context_length)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(
        vocab_size=_round_up(len(tokenizer), 64), hidden_size=shape.hidden, intermediate_size=4 * shape.hidden,
        num_hidden_layers=shape.layers, num_attention_heads=shape.hidden // shape.head,
        num_key_value_heads=shape.hidden // shape.head, max_position_embeddings=shape.context_length,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.4 * shape.hidden**-0.5,  # learns short sums in a third of the updates that 0.02 takes
        **ids,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False, pad_token_id=tokenizer.pad_token_id, **ids)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
