"""One row of packed documents as tensors.

Letters: T tokens of the row, P positions with loss, D documents.

Invariants: positions start again at 0 in every document; `boundaries` names where each begins and the last
ends; what lies behind the last boundary is zero and is read by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from posttrain.training.chat import Document


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

    @property
    def tokens(self) -> int:
        """Tokens of documents, padding not counted."""
        return int(self.boundaries[-1])

    def to(self, device: torch.device) -> PackedRow:
        moved: dict[str, Any] = {n: v.to(device) for n, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return replace(self, **moved)


def build_row(documents: Sequence[Document], *, multiple: int = 1) -> PackedRow:
    """The documents one behind another, padded to a `multiple` of tokens (at least one token, for an empty row)."""
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
    )
