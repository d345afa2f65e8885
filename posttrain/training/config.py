"""Settings of training. Imports nothing heavy: specs of steps are made of these.

Invariant: a value that makes no sense is a UserError that names its key, before anything starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from posttrain.errors import UserError
from posttrain.units import at_least, within


@dataclass
class Adam:
    """The moments of AdamW (Loshchilov and Hutter, arXiv 1711.05101)."""

    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError("must be two numbers in [0, 1)", field="adam.betas", value=list(self.betas))
        at_least("adam.eps", self.eps, 0)


@dataclass
class Lora:
    """Low-rank adapters (Hu et al., arXiv 2106.09685) by peft, merged into the model when it is exported."""

    rank: int = 0  # 0: every weight is trained
    alpha: int = 32
    dropout: float = 0.0
    targets: list[str] = field(default_factory=lambda: ["all-linear"])  # names of modules, or all-linear

    def __post_init__(self) -> None:
        at_least("lora.rank", self.rank, 0)
        at_least("lora.alpha", self.alpha, 1)
        if not 0 <= self.dropout < 1:
            raise UserError("must be in [0, 1)", field="lora.dropout", value=self.dropout)
        if self.rank and not self.targets:
            raise UserError("names no module", field="lora.targets", remedy="write [all-linear]")


@dataclass
class Checkpoints:
    every: int = 0  # updates between two; 0: only at the end
    keep_last: int = 2
    keep_every: int = 0  # keep those whose update is a multiple of this for good; 0: none

    def __post_init__(self) -> None:
        at_least("checkpoint.every", self.every, 0)
        at_least("checkpoint.keep_last", self.keep_last, 1)
        at_least("checkpoint.keep_every", self.keep_every, 0)


@dataclass
class EarlyStop:
    """Stop when the validation loss has not fallen by `min_delta` in `patience` evaluations; keep the best weights."""

    patience: int = 0  # 0: never stop early
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        at_least("early_stop.patience", self.patience, 0)
        at_least("early_stop.min_delta", self.min_delta, 0)


@dataclass
class Learning:
    """How a model learns, whatever it learns from. Documents are packed into rows of at most `row_tokens`, and each row
    is one pass through the model (gradients are summed over the rows of an update)."""

    row_tokens: int = 4096
    sequence_length: int = 2048

    learning_rate: float = 2e-5
    schedule: str = "cosine"  # cosine | constant, after a linear warm-up
    warmup: float = 0.05  # share of all updates
    decay_to: float = 0.1  # share of the learning rate at the end of a cosine
    weight_decay: float = 0.0  # of matrices; norms and biases are not decayed
    clip: float = 1.0  # largest norm of the gradient; 0 does not clip
    adam: Adam = field(default_factory=Adam)
    lora: Lora = field(default_factory=Lora)

    checkpoint: Checkpoints = field(default_factory=Checkpoints)

    dtype: str = "bfloat16"  # of the computation; weights and optimiser are float32 always
    export_dtype: str = "auto"  # auto: as the model came
    attention: str = "auto"  # auto | documents | sdpa | eager | flash_attention_2 | flex_attention
    recompute: bool = False  # activations again in the backward pass instead of kept
    logit_positions: int = 1024  # positions whose logits are in memory at once
    device: str = "auto"  # auto | cpu | cuda
    threads: int = 0  # on a CPU, part of what fixes every bit; 0: all cores this process may use

    def __post_init__(self) -> None:
        for name in ("row_tokens", "sequence_length", "logit_positions"):
            at_least(name, getattr(self, name), 1)
        for name in ("weight_decay", "clip", "threads"):
            at_least(name, getattr(self, name), 0)
        for name in ("warmup", "decay_to"):
            within(name, getattr(self, name), 0, 1)
        if not self.learning_rate > 0:
            raise UserError("must be greater than 0", field="learning_rate", value=self.learning_rate)
        if self.row_tokens < self.sequence_length:
            raise UserError(
                f"is less than sequence_length ({self.sequence_length}), so that the longest document has no row",
                field="row_tokens",
                value=self.row_tokens,
                remedy="raise row_tokens or lower sequence_length",
            )
        one_of("schedule", self.schedule, "cosine", "constant")
        one_of("dtype", self.dtype, "bfloat16", "float32")
        one_of("export_dtype", self.export_dtype, "auto", "bfloat16", "float32", "float16")
        known = ("auto", "documents", "sdpa", "eager", "flash_attention_2", "flex_attention")
        one_of("attention", self.attention, *known)
        one_of("device", self.device, "auto", "cpu", "cuda")


@dataclass
class Training(Learning):
    """Supervised training on conversations: an update takes documents until they hold `batch_tokens`."""

    epochs: int = 1
    max_updates: int = 0  # 0: as many as the epochs give
    batch_tokens: int = 16384
    overlong: str = "drop"  # a conversation of more tokens than sequence_length: drop | truncate | error
    shuffle: bool = True

    eval_every: int = 0  # updates between two validation losses; 0: only at the end
    early_stop: EarlyStop = field(default_factory=EarlyStop)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("epochs", self.epochs, 1)
        at_least("batch_tokens", self.batch_tokens, 1)
        for name in ("max_updates", "eval_every"):
            at_least(name, getattr(self, name), 0)
        if self.early_stop.patience and not self.eval_every:
            raise UserError("needs eval_every", field="early_stop.patience", value=self.early_stop.patience)
        one_of("overlong", self.overlong, "drop", "truncate", "error")


@dataclass
class Selection:
    """Which rows a cold start is made of: few, right, readable, and of every tier."""

    size: int = 128  # rows chosen; 0: all that pass
    balance: bool = True  # the same number of every tier, as far as they go
    verified: bool = True  # only where the row's verifier holds the assistant's last message to be right, in its form
    min_characters: int = 1
    max_characters: int = 8000
    max_repeat: float = 0.5  # largest share of a text's lines that occurred before in it
    required: str = ""  # a regular expression that the text must contain; empty: none

    def __post_init__(self) -> None:
        for name in ("size", "min_characters"):
            at_least(f"selection.{name}", getattr(self, name), 0)
        at_least("selection.max_characters", self.max_characters, self.min_characters)
        within("selection.max_repeat", self.max_repeat, 0, 1)
        try:
            re.compile(self.required)
        except re.error as problem:
            reason = f"is no regular expression: {problem}"
            raise UserError(reason, field="selection.required", value=self.required) from None


def one_of(name: str, value: str, *known: str) -> None:
    if value not in known:
        remedy = "write " + ", ".join(known[:-1]) + f" or {known[-1]}"
        raise UserError("is not known", field=name, value=value, remedy=remedy)
