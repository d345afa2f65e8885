"""Supervised training as a step: references in, a model and a checkpoint out. SFT and cold start are both this."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from posttrain.contract import Ref, StepContext
from posttrain.contract.digest import digest_value
from posttrain.errors import UserError
from posttrain.training import determinism
from posttrain.training.chat import Chat
from posttrain.training.config import Training
from posttrain.training.documents import Row, build_corpus, read_rows
from posttrain.training.export import export
from posttrain.training.learner import Learner
from posttrain.training.model import choose_device, load_model
from posttrain.training.strategy import current
from posttrain.training.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    model: str
    checkpoint: str
    loss: float
    validation_loss: float
    updates: int
    tokens: int
    tokens_per_second: float


def train_supervised(
    context: StepContext, config: Training, *, model: str, validation: str, rows: Sequence[Row], train: str
) -> Trained:
    """Train `model` on `rows` of the table `train` with `validation` held out, and export it to `model/` of the step.

    `model`, `train` and `validation` are refs. A checkpoint that was left by an earlier start of the same
    request is resumed. Raises UserError for what the user has to change.
    """
    source = context.locate(model, field=f"{context.step}.model")
    threads = determinism.fix(seed=context.seed, threads=config.threads, device=choose_device(config.device))
    chat = Chat(_tokenizer(source, field=f"{context.step}.model"), field=f"{context.step}.model")
    corpora = [
        build_corpus(
            part, chat, sequence_length=config.sequence_length, overlong=config.overlong,
            field=f"{context.step}.{name}", progress=context.progress,
        )
        for name, part in (
            ("train", rows),
            ("validation", read_rows(context.workspace, validation, field=f"{context.step}.validation")),
        )
    ]  # fmt: skip
    strategy = current()
    learner = Learner(load_model(source, config, field=f"{context.step}.model"), config, strategy)
    log.info(
        "%d documents, %d tokens (%d with loss); %d weights of %s; %s on %d threads",
        len(corpora[0].documents), corpora[0].tokens, corpora[0].loss_tokens,
        sum(w.numel() for w in learner.model.weights.values()), source.name, learner.model.module.device, threads,
    )  # fmt: skip
    request = digest_value(
        [asdict(config), context.seed, threads, model, train, validation, [row["id"] for row in rows]]
    )
    result = Trainer(context, learner, strategy, config, train=corpora[0], validation=corpora[1], request=request).run()
    target = context.directory / "model"
    digest = export(learner.model, source, target, dtype=config.export_dtype)
    state = result.state
    validation_loss = state.best_loss if config.early_stop.patience else state.validation_loss
    assert validation_loss is not None, "the last update is always evaluated"
    return Trained(
        model=str(Ref(context.relative(target), digest=digest)),
        checkpoint=str(Ref(context.relative(result.checkpoint.path), digest=result.checkpoint.digest)),
        loss=state.loss,
        validation_loss=validation_loss,
        updates=state.update,
        tokens=state.tokens,
        tokens_per_second=round(result.tokens_per_second, 1),
    )


def _tokenizer(source: Path, *, field: str) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError) as problem:
        raise UserError(
            f"has no tokenizer that can be loaded: {str(problem).strip().splitlines()[0]}",
            field=field, value=str(source), remedy="put tokenizer.json and tokenizer_config.json beside the weights",
        ) from None  # fmt: skip
