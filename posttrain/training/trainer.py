"""The loop: updates, evaluation, early stop, checkpoints, resume.

Invariants: what happens in an update depends on the configuration, the data and the seed only, so that a training that
was killed anywhere and started again has the same losses, bit for bit on a CPU, as one that was not; the
curve in metrics.jsonl has every update once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from posttrain.contract import StepContext
from posttrain.contract.context import METRICS
from posttrain.training.batch import PackedRow, build_row
from posttrain.training.chat import Document
from posttrain.training.checkpoints import CheckpointStore, Saved
from posttrain.training.config import Training
from posttrain.training.curves import forget_after
from posttrain.training.documents import Corpus
from posttrain.training.learner import Learner
from posttrain.training.optim import learning_rate
from posttrain.training.packing import Update, epoch_order, pack, plan_epoch
from posttrain.training.state import restore, tensors
from posttrain.training.strategy import Strategy

log = logging.getLogger(__name__)

RECENT = 10  # updates over which the reported loss is a mean


@dataclass
class State:
    """What the loop remembers from one update to the next; a checkpoint's `state`."""

    update: int = 0  # updates done
    tokens: int = 0  # tokens trained on, prompts counted, padding not
    recent_losses: list[float] = field(default_factory=list)
    validation_loss: float | None = None
    validated_at: int = -1
    best_loss: float | None = None
    best_update: int = 0
    stale: int = 0  # evaluations since the best one
    stopped: bool = False

    @property
    def loss(self) -> float:
        return sum(self.recent_losses) / len(self.recent_losses)


@dataclass(frozen=True)
class Result:
    state: State
    checkpoint: Saved
    tokens_per_second: float  # of the training passes of this process; 0 where none was left to do


class Trainer:
    """Trains `learner` on `train`, with `validation` held out. `request` names all that determines the result."""

    def __init__(
        self, context: StepContext, learner: Learner, strategy: Strategy, config: Training, *,
        train: Corpus, validation: Corpus, request: str,
    ):  # fmt: skip
        self._context, self._learner, self._strategy, self._config = context, learner, strategy, config
        self._documents = train.documents
        self._lengths = [len(document) for document in train.documents]
        self._orders: dict[int, list[int]] = {}
        self._plan = self._plan_updates()
        self._validation = self._validation_rows(validation.documents)
        self._validation_tokens = validation.loss_tokens
        self._store = CheckpointStore(context.checkpoints, config.checkpoint, request=request)

    def run(self) -> Result:
        """Train to the end from the newest checkpoint, or from the start. The learner then holds the weights to keep.

        Raises NotFinite, and OSError where the disk is full; checkpoints that were complete stay.
        """
        try:
            return self._run()
        finally:
            self._store.close()

    def _run(self) -> Result:
        state, saved = self._resume()
        trained, spent = 0, 0.0
        remaining = [] if state.stopped else self._plan[state.update :]
        with self._context.progress.task("train", total=sum(map(self._tokens, self._plan)), unit="tokens") as task:
            task.advance(state.tokens)
            for update in remaining:
                started = time.monotonic()
                values = self._train(state, update)
                seconds, tokens = time.monotonic() - started, self._tokens(update)
                trained, spent = trained + tokens, spent + seconds
                self._context.log(state.update, **values, tokens_per_second=round(tokens / seconds, 1))
                task.advance(tokens, loss=values["loss"])
                if self._due(self._config.eval_every, state):
                    self._evaluate(state)
                self._store.poll()
                if self._due(self._config.checkpoint.every, state) or self._is_best(state):
                    self._save(state)
                if state.stopped:
                    log.info("stopped at update %d: the validation loss no longer falls", state.update)
                    break
        saved = self._store.wait() or saved
        assert saved is not None, "the last update is always saved"
        if self._config.early_stop.patience and state.best_update != state.update:
            saved = self._store.at(state.best_update)
            self._restore(saved)
            log.info("the weights of update %d are kept: the lowest validation loss", state.best_update)
        return Result(state, saved, trained / spent if spent else 0.0)

    def _train(self, state: State, update: Update) -> dict[str, float]:
        members = self._members(update)
        rows = self._strategy.share(pack(self._lengths, members, capacity=self._config.row_tokens))
        rate = learning_rate(state.update, len(self._plan), self._config)
        done = self._learner.update(
            [build_row([self._documents[d] for d in row]) for row in rows],
            number=state.update + 1,
            loss_tokens=sum(self._documents[d].loss_tokens for d in members),
            sequences=len(members),
            learning_rate=rate,
        )
        state.update += 1
        state.tokens += self._tokens(update)
        state.recent_losses = [*state.recent_losses, done.loss][-RECENT:]
        return {"loss": done.loss, "grad_norm": done.grad_norm, "learning_rate": rate}

    def _evaluate(self, state: State) -> None:
        loss = self._learner.evaluate(self._validation, loss_tokens=self._validation_tokens)
        state.validation_loss = loss
        self._context.log(state.update, validation_loss=loss)
        log.info("update %d of %d: validation loss %.4f", state.update, len(self._plan), loss)
        if state.best_loss is None or loss < state.best_loss - self._config.early_stop.min_delta:
            state.best_loss, state.best_update, state.stale = loss, state.update, 0
        else:
            state.stale += 1
        patience = self._config.early_stop.patience
        state.stopped = bool(patience) and state.stale >= patience

    def _due(self, every: int, state: State) -> bool:
        return state.stopped or state.update == len(self._plan) or (every > 0 and state.update % every == 0)

    def _is_best(self, state: State) -> bool:
        return self._config.early_stop.patience > 0 and state.best_update == state.update

    def _save(self, state: State) -> None:
        if self._config.early_stop.patience:
            self._store.protected = {state.best_update}
        self._store.save(state.update, tensors(self._learner), asdict(state))

    def _resume(self) -> tuple[State, Saved | None]:
        saved = self._store.newest()
        if saved is None:
            self._forget_after(0)
            return State(), None
        state = self._restore(saved)
        log.info("resuming from %s, %d of %d updates done", saved.path, state.update, len(self._plan))
        self._forget_after(state.update)
        return state, saved

    def _forget_after(self, update: int) -> None:
        forget_after(self._context.directory / METRICS, update, key="step")

    def _restore(self, saved: Saved) -> State:
        restore(saved, self._learner)
        return State(**saved.state)

    def _plan_updates(self) -> list[Update]:
        config = self._config
        plan = [
            update
            for epoch in range(config.epochs)
            for update in plan_epoch(self._lengths, self._order(epoch), epoch=epoch, batch_tokens=config.batch_tokens)
        ]
        return plan[: config.max_updates] if config.max_updates else plan

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            self._orders[epoch] = epoch_order(
                len(self._documents), seed=self._context.seed, epoch=epoch, shuffle=self._config.shuffle
            )
        return self._orders[epoch]

    def _members(self, update: Update) -> list[int]:
        return self._order(update.epoch)[update.start : update.stop]

    def _tokens(self, update: Update) -> int:
        return sum(self._lengths[d] for d in self._members(update))

    def _validation_rows(self, documents: Sequence[Document]) -> list[PackedRow]:
        lengths = [len(document) for document in documents]
        rows = pack(lengths, range(len(documents)), capacity=self._config.row_tokens)
        return [build_row([documents[d] for d in row]) for row in self._strategy.share(rows)]
