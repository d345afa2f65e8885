"""Log-probabilities at the positions with loss, and what is made of them.

Letters: T tokens of a row, P positions with loss, C of them at a time, V vocabulary, W width of the model.

Invariants: the output layer sees only the positions with loss; logits of more than `logit_positions` positions are
never in memory at once; the loss is a sum, which the caller divides by the tokens of the whole update over all
rows and ranks, so that neither packing nor the number of ranks changes the gradient.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from posttrain.training.batch import PackedRow


class Scorer:
    """Log-probabilities of the tokens to be produced, by a Hugging Face causal model."""

    def __init__(self, model: PreTrainedModel, *, logit_positions: int):
        self._model, self._chunk = model, logit_positions
        self._plain_head = _head_is_plain(model)

    def __call__(self, row: PackedRow) -> torch.Tensor:
        """float32 [P]: the log-probability of each of `row.targets_P`, with gradient where that is on."""
        places = {
            "input_ids": row.tokens_1T, "position_ids": row.positions_1T, "use_cache": False,
            "cu_seq_lens_q": row.boundaries, "cu_seq_lens_k": row.boundaries,
            "max_length_q": row.longest, "max_length_k": row.longest,
        }  # fmt: skip
        if not self._plain_head:
            logits_PV = self._model(**places, logits_to_keep=row.predicts_P).logits[0]
            return logprobs_of(logits_PV, row.targets_P)
        hidden_1TW = self._model.get_decoder()(**places).last_hidden_state
        hidden_PW = hidden_1TW[0].index_select(0, row.predicts_P)
        head = self._model.get_output_embeddings()
        assert head is not None
        if len(hidden_PW) <= self._chunk:
            return logprobs_of(head(hidden_PW), row.targets_P)

        def part(hidden_CW: torch.Tensor, targets_C: torch.Tensor) -> torch.Tensor:
            return logprobs_of(head(hidden_CW), targets_C)

        return torch.cat(
            [
                checkpoint(part, hidden_CW, targets_C, use_reentrant=False)
                for hidden_CW, targets_C in zip(
                    hidden_PW.split(self._chunk), row.targets_P.split(self._chunk), strict=True
                )
            ]
        )


def cross_entropy_sum(logprobs_P: torch.Tensor) -> torch.Tensor:
    """The objective of supervised training: the negative log-likelihood of the tokens, summed."""
    return -logprobs_P.sum()


def logprobs_of(logits_CV: torch.Tensor, targets_C: torch.Tensor) -> torch.Tensor:
    logits_CV = logits_CV.float()
    return logits_CV.gather(1, targets_C[:, None])[:, 0] - logits_CV.logsumexp(1)


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
