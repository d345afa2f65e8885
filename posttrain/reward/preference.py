"""A preference model: a sequence classifier of Transformers, whose score of a conversation is the reward.

One logit is the score as it is (the convention of reward models since InstructGPT); of two, the probability of the
second. In the child's process: torch is loaded there and nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _load(directory: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(1)
    model = AutoModelForSequenceClassification.from_pretrained(directory, local_files_only=True)
    return AutoTokenizer.from_pretrained(directory, local_files_only=True), model.eval()


def score(directory: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    """The reward of a conversation that ends with the answer. The oldest tokens go where it is too long."""
    import torch

    tokenizer, model = _load(directory)
    if tokenizer.chat_template:
        tokens = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    else:
        tokens = tokenizer("\n\n".join(m["content"] for m in messages))["input_ids"]
    longest = getattr(model.config, "max_position_embeddings", None) or len(tokens)
    tokens_1T = torch.tensor([tokens[-longest:]])
    with torch.inference_mode():
        logits = model(input_ids=tokens_1T, attention_mask=torch.ones_like(tokens_1T)).logits[0].float()
    if logits.numel() > 2:
        raise ValueError(f"the model has {logits.numel()} classes, which is no preference")
    reward = logits[0] if logits.numel() == 1 else logits.softmax(0)[1]
    return {"reward": reward.item(), "evidence": {"logits": logits.tolist(), "tokens": len(tokens)}}
