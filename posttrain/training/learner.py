"""One update of the weights, all of it or nothing.

Letters: P positions with loss of a row.

Invariants: gradients are summed over rows and ranks and divided once, by the tokens with loss of the whole
update; a loss or a gradient that is not finite stops every rank at that update, names the samples and changes no
weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from posttrain.errors import UserError
from posttrain.training.batch import PackedRow
from posttrain.training.config import Training
from posttrain.training.loss import Scorer, cross_entropy_sum
from posttrain.training.model import TrainedModel
from posttrain.training.optim import build_optimizer, optimizer_state
from posttrain.training.strategy import Strategy

Objective = Callable[[torch.Tensor], torch.Tensor]  # float32 [P] log-probabilities -> their loss, summed


class NotFinite(UserError):
    """A loss or a gradient is not finite. Another try would end the same way."""


class UpdateResult(NamedTuple):
    loss: float  # mean over the update's tokens with loss, before the update
    grad_norm: float  # before clipping


class Learner:
    """A model, its optimiser and the strategy by which an update is shared out."""

    def __init__(self, model: TrainedModel, config: Training, strategy: Strategy, *, scorer: type[Scorer] = Scorer):
        self.model, self._strategy, self._clip = model, strategy, config.clip
        self._optimizer = build_optimizer(model.weights, config)
        self._score = scorer(model.module, logit_positions=config.logit_positions)

    def update(
        self,
        rows: Sequence[PackedRow],
        *,
        number: int,
        loss_tokens: int,
        learning_rate: float,
        objective: Objective = cross_entropy_sum,
    ) -> UpdateResult:
        """One step of the optimiser on this rank's `rows`; `loss_tokens` counts those of all ranks.

        Raises NotFinite, with the weights and the optimiser as they were.
        """
        device = self.model.module.device
        total = torch.zeros((), dtype=torch.float64, device=device)
        scores: list[torch.Tensor] = []
        for row in rows:
            logprobs_P = self._score(row.to(device))
            loss = objective(logprobs_P)
            (loss / loss_tokens).backward()
            self.model.collect()
            total += loss.detach()
            scores.append(logprobs_P.detach())
        self._strategy.reduce_gradients(self.model.weights.values())
        mean = float(self._strategy.sum(total)) / loss_tokens
        gradients = [weight.grad for weight in self.model.weights.values() if weight.grad is not None]
        norm = get_total_norm(gradients)
        if not (torch.isfinite(norm) and torch.isfinite(torch.tensor(mean))):
            self._forget_gradients()
            raise NotFinite(
                f"loss {mean:g} and gradient norm {float(norm):g} at update {number}, on {_named(rows, scores)}; "
                "no weight was changed",
                field="train",
                remedy="look at these samples, or lower learning_rate",
            )
        if self._clip:
            clip_grads_with_norm_(self.model.weights.values(), self._clip, norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._forget_gradients()
        self.model.publish()
        return UpdateResult(mean, float(norm))

    @torch.no_grad()
    def evaluate(self, rows: Iterable[PackedRow], *, loss_tokens: int) -> float:
        """The mean negative log-likelihood over `rows`, of which the ranks hold `loss_tokens` together."""
        module = self.model.module
        module.eval()
        total = torch.zeros((), dtype=torch.float64, device=module.device)
        for row in rows:
            total += cross_entropy_sum(self._score(row.to(module.device)))
        module.train()
        return float(self._strategy.sum(total)) / loss_tokens

    def state(self) -> dict[str, dict]:
        """All tensors of a checkpoint, by name. They are the learner's own: loading into them restores it."""
        return {
            "weights": {name: weight.data for name, weight in self.model.weights.items()},
            "optimizer": optimizer_state(self._optimizer, self.model.weights),
        }

    def _forget_gradients(self) -> None:
        for weight in self.model.weights.values():
            weight.grad = None


def _named(rows: Sequence[PackedRow], scores: Sequence[torch.Tensor], most: int = 8) -> str:
    """The samples whose own score is not finite; all of the update's where each by itself is."""
    bad = [
        row.documents[int(d)]
        for row, logprobs_P in zip(rows, scores, strict=True)
        for d in row.document_P[~torch.isfinite(logprobs_P).cpu()].unique()
    ]
    names = bad or [name for row in rows for name in row.documents]
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"sample{'s' if len(names) > 1 else ''} {shown}"
