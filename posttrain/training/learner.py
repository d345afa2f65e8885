"""One update of the weights, all of it or nothing.

Letters: P positions with loss of a row.

Invariants: gradients are summed over rows and ranks and divided once, by the objective's normaliser of the whole
update; a loss or a gradient that is not finite stops every rank at that update, names the samples and changes no
weight. No objective is known here by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from posttrain.errors import UserError
from posttrain.training.batch import PackedRow
from posttrain.training.config import Learning
from posttrain.training.loss import Scorer
from posttrain.training.model import TrainedModel
from posttrain.training.objectives.build import CROSS_ENTROPY, Objective
from posttrain.training.objectives.tokens import Mean, Metrics, Policy, add, reported
from posttrain.training.optim import build_optimizer, optimizer_state
from posttrain.training.strategy import Strategy


class NotFinite(UserError):
    """A loss or a gradient is not finite. Another try would end the same way."""


class UpdateResult(NamedTuple):
    loss: float  # by the objective's normaliser, before the update
    grad_norm: float  # before clipping
    metrics: dict[str, float]  # what the objective reports, over all ranks


class Learner:
    """A model, its optimiser and the strategy by which an update is shared out."""

    def __init__(
        self,
        model: TrainedModel,
        config: Learning,
        strategy: Strategy,
        *,
        objective: Objective = CROSS_ENTROPY,
        temperature: float = 1.0,
        scorer: type[Scorer] = Scorer,
    ):
        self.model, self.objective = model, objective
        self._strategy, self._clip = strategy, config.clip
        self._optimizer = build_optimizer(model.weights, config)
        self._score = scorer(
            model.module,
            logit_positions=config.logit_positions,
            temperature=temperature,
            entropy=objective.entropy,
        )

    def update(
        self,
        rows: Sequence[PackedRow],
        *,
        number: int,
        loss_tokens: int,
        sequences: int,
        learning_rate: float,
    ) -> UpdateResult:
        """One step of the optimiser on this rank's `rows`; `loss_tokens` and `sequences` count those of all ranks.

        Raises NotFinite, with the weights and the optimiser as they were.
        """
        device = self.model.module.device
        normaliser = self.objective.normaliser(tokens=loss_tokens, sequences=sequences)
        total = torch.zeros((), dtype=torch.float64, device=device)
        metrics: Metrics = {}
        scores: list[torch.Tensor] = []
        for row in (row.to(device) for row in rows):
            policy = self._score(row)
            loss, measured = self.objective(policy, row.experience)
            (loss / normaliser).backward()
            self.model.collect()
            total += loss.detach()
            metrics = add([metrics, measured])
            scores.append(policy.logprobs_P.detach())
        self._strategy.reduce_gradients(self.model.weights.values())
        total, metrics = self._over_ranks(total, metrics)
        mean = float(total) / normaliser
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
        return UpdateResult(mean, float(norm), reported(metrics))

    @torch.no_grad()
    def evaluate(self, rows: Iterable[PackedRow], *, loss_tokens: int) -> float:
        """The mean negative log-likelihood over `rows`, of which the ranks hold `loss_tokens` together."""
        total = torch.zeros((), dtype=torch.float64, device=self.model.module.device)
        for policy in self.score(rows):
            total += -policy.logprobs_P.sum()
        return float(self._strategy.sum(total)) / loss_tokens

    @torch.no_grad()
    def score(self, rows: Iterable[PackedRow]) -> list[Policy]:
        """What the model as it is says of each row; nothing is trained."""
        module = self.model.module
        module.eval()
        scored = [self._score(row.to(module.device)) for row in rows]
        module.train()
        return scored

    def state(self) -> dict[str, dict]:
        """All tensors of a checkpoint, by name. They are the learner's own: loading into them restores it."""
        return {
            "weights": {name: weight.data for name, weight in self.model.weights.items()},
            "optimizer": optimizer_state(self._optimizer, self.model.weights),
        }

    def _over_ranks(self, total: torch.Tensor, metrics: Metrics) -> tuple[torch.Tensor, Metrics]:
        """Loss and metrics summed over all ranks, in one exchange. Every rank has a row and so the same names."""
        names = sorted(metrics)
        summed = self._strategy.sum(torch.stack([total, *(part for name in names for part in metrics[name])]))
        pairs = summed[1:].view(-1, 2)
        return summed[0], {name: Mean(*pair) for name, pair in zip(names, pairs, strict=True)}

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
