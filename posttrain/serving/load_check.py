"""Whether a release computes what its checkpoint computes: log-probabilities of real conversations, compared.

Letters: T tokens of a conversation, V the vocabulary.

The checkpoint's float32 weights are laid into the model that training began with and rounded to the type of the
release; then both compute in float32 on the same device. What may remain is the order of a few additions, so the
tolerance is small, and a tensor that is missing, swapped, stale or damaged shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from posttrain.contract.config import resolve
from posttrain.errors import UserError
from posttrain.training import checkpoints
from posttrain.training.config import Lora, Training
from posttrain.training.model import DTYPES, load_model

LONGEST = 512  # tokens of a conversation that are compared


@dataclass(frozen=True)
class Comparison:
    """Absolute differences of log-probabilities over all positions and the whole vocabulary."""

    largest: float
    mean: float
    positions: int


def compare(
    release: Path, checkpoint: Path, base: Path, training: dict[str, Any], conversations: Sequence[list[dict[str, str]]]
) -> Comparison:
    """Compare the model in `release` with `checkpoint`, whose training began with `base` under the config `training`.

    Raises UserError where one of them cannot be loaded or the checkpoint's digests do not hold.
    """
    tokenizer = AutoTokenizer.from_pretrained(release, local_files_only=True)
    prompts: list[Any] = [
        tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)[:LONGEST]
        for messages in conversations
    ]
    # One after the other, so that only one of the models is in memory.
    expected = _logprobs(_from_checkpoint(checkpoint, base, training, _dtype(release)), prompts)
    plain = Training(dtype="float32", lora=Lora(rank=0))
    found = _logprobs(load_model(release, plain, field="export.model").finish(torch.float32), prompts)
    differences = [(a_TV - b_TV).abs() for a_TV, b_TV in zip(expected, found, strict=True)]
    # A NaN is larger than every tolerance, which max() alone would not say.
    largest = max(float(d.nan_to_num(nan=torch.inf).max()) for d in differences)
    mean = sum(float(d.double().sum()) for d in differences) / sum(d.numel() for d in differences)
    return Comparison(largest, mean, sum(map(len, prompts)))


def _from_checkpoint(checkpoint: Path, base: Path, training: dict[str, Any], dtype: torch.dtype) -> PreTrainedModel:
    known = {f.name for f in fields(Training)}
    config = resolve(Training, {key: value for key, value in training.items() if key in known})
    saved = checkpoints.read(checkpoint)
    checkpoints.verify(saved)
    model = load_model(base, config, field="export.base")
    # Frozen weights are as training computed with them; those of the checkpoint have all of their 32 bits.
    checkpoints.load(saved, {"weights": {name: weight.data for name, weight in model.weights.items()}})
    return model.finish(dtype).float()  # type: ignore[return-value]


def _dtype(release: Path) -> torch.dtype:
    config = json.loads((release / "config.json").read_text())
    return DTYPES[config.get("dtype") or config.get("torch_dtype") or "float32"]


@torch.no_grad()
def _logprobs(model: PreTrainedModel, prompts: Sequence[list[int]]) -> list[torch.Tensor]:
    model.eval()
    model.set_attn_implementation("eager")  # training's own takes packed documents only
    found = []
    for tokens in prompts:
        logits_TV = model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False).logits[0]
        found.append(logits_TV.float().log_softmax(-1).cpu())
    return found


def check(comparison: Comparison, tolerance: float) -> None:
    """Raise UserError where the release is further from the checkpoint than `tolerance`."""
    if not comparison.largest <= tolerance:
        raise UserError(
            f"the exported model is not the checkpoint's: log-probabilities differ by up to {comparison.largest:.3g} "
            f"(mean {comparison.mean:.3g}), {tolerance:g} is allowed",
            field="export.model",
            remedy="export the model that this checkpoint belongs to",
        )
