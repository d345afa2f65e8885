"""One row of packed documents as tensors.

Letters: T tokens of the row, P positions with loss, D documents.

Invariants: positions start again at 0 in every document; `boundaries` names where each begins and the last
ends; what lies behind the last boundary is zero and is read by nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from posttrain.training.chat import Document
from posttrain.training.objectives.tokens import Experience


@dataclass(frozen=True, eq=False)
class PackedRow:
    tokens_1T: torch.Tensor  # int64
    positions_1T: torch.Tensor  # int64
    boundaries: torch.Tensor  # int32 [D+1], as flash-attn's cu_seqlens
    longest: int
    predicts_P: torch.Tensor  # int64: where in the row a logit is needed, the place before the token to be produced
    targets_P: torch.Tensor  # int64: the token to be produced
    document_P: torch.Tensor  # int64: whose it is, as an index into `documents`
    documents: tuple[str, ...]
    signals: dict[str, torch.Tensor] = field(default_factory=dict)  # float32 [P] each, by the names that documents give

    @property
    def tokens(self) -> int:
        """Tokens of documents, padding not counted."""
        return int(self.boundaries[-1])

    def to(self, device: torch.device) -> PackedRow:
        moved: dict[str, Any] = {n: v.to(device) for n, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return replace(self, **moved, signals={name: values.to(device) for name, values in self.signals.items()})

    @property
    def experience(self) -> Experience:
        """What an objective is told of the row's tokens."""
        return Experience(self.document_P, len(self.documents), self.signals)

    def by_document(self, values_P: torch.Tensor) -> dict[str, np.ndarray]:
        """A number for each position with loss, cut up: [P] of each document."""
        lengths = torch.bincount(self.document_P, minlength=len(self.documents)).tolist()
        pieces = values_P.cpu().split(lengths)
        return {name: piece.numpy() for name, piece in zip(self.documents, pieces, strict=True)}


def build_row(documents: Sequence[Document], *, multiple: int = 1, signals: Collection[str] = ()) -> PackedRow:
    """The documents one behind another, padded to a `multiple` of tokens (at least one token, for an empty row).

    `signals` names those of the documents' that the row takes; all of its documents have them.
    """
    lengths = [len(document) for document in documents]
    boundaries = np.cumsum([0, *lengths], dtype=np.int32)
    width = max(-(-int(boundaries[-1]) // multiple), 1) * multiple
    tokens, positions, loss, owner = (np.zeros(width, np.int64) for _ in range(4))
    for index, (document, start) in enumerate(zip(documents, boundaries[:-1], strict=True)):
        piece = slice(start, start + len(document))
        tokens[piece], positions[piece] = document.tokens, np.arange(len(document))
        loss[piece], owner[piece] = document.loss, index
        loss[start] = 0
    produced = np.flatnonzero(loss)
    return PackedRow(
        tokens_1T=torch.from_numpy(tokens)[None],
        positions_1T=torch.from_numpy(positions)[None],
        boundaries=torch.from_numpy(boundaries),
        longest=max(lengths, default=0),
        predicts_P=torch.from_numpy(produced - 1),
        targets_P=torch.from_numpy(tokens[produced]),
        document_P=torch.from_numpy(owner[produced]),
        documents=tuple(document.id for document in documents),
        signals={name: _joined([document.signals[name] for document in documents], produced) for name in signals},
    )


def _joined(parts: Sequence[np.ndarray], produced: np.ndarray) -> torch.Tensor:
    joined = np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32)
    if len(joined) != len(produced):
        raise ValueError(f"{len(joined)} numbers for {len(produced)} positions with loss")
    return torch.from_numpy(joined)
