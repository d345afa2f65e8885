"""Log-probabilities at the positions with loss, with entropies and a critic's values where asked.

Letters: T tokens of a row, P positions with loss, C of them at a time, V vocabulary, W width of the model.

Invariants: the output layer sees only the positions with loss; logits of more than `logit_positions` positions are
never in memory at once; the temperature is the sampler's, so that both sides speak of one distribution.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from posttrain.errors import UserError
from posttrain.training.batch import PackedRow
from posttrain.training.objectives.tokens import Entropy, Policy


class Scorer:
    """Log-probabilities of the tokens to be produced, by a Hugging Face causal model.

    A critic is a linear layer `value_head` on the model's last hidden state.
    """

    def __init__(
        self, model: PreTrainedModel, *, logit_positions: int, temperature: float = 1.0, entropy: Entropy = "none"
    ):
        self._model, self._chunk = model, logit_positions
        self._temperature, self._entropy = temperature, entropy
        self._plain_head = _head_is_plain(model)
        if hasattr(model, "value_head") and not self._plain_head:
            raise UserError(
                f"{model.config.model_type} caps or scales its logits, and a critic stands only on plain ones",
                field="objective.name", remedy="take an objective without a critic",
            )  # fmt: skip

    def __call__(self, row: PackedRow) -> Policy:
        """float32 [P]: of each of `row.targets_P`, with gradient where that is on."""
        places = {
            "input_ids": row.tokens_1T, "position_ids": row.positions_1T, "use_cache": False,
            "cu_seq_lens_q": row.boundaries, "cu_seq_lens_k": row.boundaries,
            "max_length_q": row.longest, "max_length_k": row.longest,
        }  # fmt: skip
        if not self._plain_head:
            logits_PV = self._model(**places, logits_to_keep=row.predicts_P).logits[0]
            return Policy(*self._of_logits(logits_PV, row.targets_P))
        hidden_1TW = self._model.get_decoder()(**places).last_hidden_state
        hidden_PW = hidden_1TW[0].index_select(0, row.predicts_P)
        critic = getattr(self._model, "value_head", None)
        values_P = critic(hidden_PW)[:, 0].float() if critic is not None else None
        return Policy(*self._of_hidden(hidden_PW, row.targets_P), values_P)

    def _of_hidden(self, hidden_PW: torch.Tensor, targets_P: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities and entropies, chunk by chunk where there are many positions."""
        head = self._model.get_output_embeddings()
        assert head is not None

        def part(hidden_CW: torch.Tensor, targets_C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return self._of_logits(head(hidden_CW), targets_C)

        if len(hidden_PW) <= self._chunk:
            return part(hidden_PW, targets_P)
        chunks = zip(hidden_PW.split(self._chunk), targets_P.split(self._chunk), strict=True)
        parts = [checkpoint(part, *chunk, use_reentrant=False) for chunk in chunks]
        entropies = None if self._entropy == "none" else torch.cat([entropy for _, entropy in parts])
        return torch.cat([logprobs for logprobs, _ in parts]), entropies

    def _of_logits(self, logits_CV: torch.Tensor, targets_C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits_CV = logits_CV.float()
        if self._temperature != 1:
            logits_CV = logits_CV / self._temperature
        logprobs_C = logprobs_of(logits_CV, targets_C)
        if self._entropy == "none":
            return logprobs_C, None
        return logprobs_C, entropy_of(logits_CV if self._entropy == "trained" else logits_CV.detach())


def logprobs_of(logits_CV: torch.Tensor, targets_C: torch.Tensor) -> torch.Tensor:
    logits_CV = logits_CV.float()
    return logits_CV.gather(1, targets_C[:, None])[:, 0] - logits_CV.logsumexp(1)


def entropy_of(logits_CV: torch.Tensor) -> torch.Tensor:
    """In nats; a token whose logit is −inf adds nothing, and nothing to the gradient."""
    weighted_CV = logits_CV.softmax(1) * logits_CV.masked_fill(logits_CV.isneginf(), 0.0)
    return logits_CV.logsumexp(1) - weighted_CV.sum(1)


@torch.no_grad()
def _head_is_plain(model: PreTrainedModel) -> bool:
    """Whether logits are just the output layer of the last hidden state; some families scale or cap them."""
    training = model.training
    model.eval()
    probe = {
        "input_ids": torch.ones(1, 2, dtype=torch.int64, device=model.device),
        "position_ids": torch.arange(2, device=model.device)[None],
        "cu_seq_lens_q": (ends := torch.tensor([0, 2], dtype=torch.int32, device=model.device)),
        "cu_seq_lens_k": ends, "max_length_q": 2, "max_length_k": 2, "use_cache": False,
    }  # fmt: skip
    head = model.get_output_embeddings()
    plain = head is not None and torch.equal(
        head(model.get_decoder()(**probe).last_hidden_state), model(**probe).logits
    )
    model.train(training)
    return plain
