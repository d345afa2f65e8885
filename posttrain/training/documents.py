"""The rows of a prepared table as documents, with what was left out counted.

Invariant: the documents are in the order of the table's rows, and a row is left out only for a named reason.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.contract.progress import Progress
from posttrain.errors import UserError
from posttrain.lake import open_table
from posttrain.training.chat import Chat, Document, read_messages

log = logging.getLogger(__name__)

Row = dict[str, Any]  # of a prepared table: id, messages, answer, verifier, metadata, tier


@dataclass
class Corpus:
    documents: list[Document]
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        return sum(map(len, self.documents))

    @property
    def loss_tokens(self) -> int:
        return sum(document.loss_tokens for document in self.documents)


def read_rows(workspace: Path, ref: str, *, field: str) -> list[Row]:
    """All rows of the table. Raises UserError naming `field` where there are none."""
    rows = open_table(workspace, ref, field=field).to_table().to_pylist()
    if not rows:
        raise UserError("holds no rows", field=field, value=ref, remedy="prepare data that leaves some")
    return rows


def build_corpus(
    rows: Iterable[Row], chat: Chat, *, sequence_length: int, overlong: str, field: str, progress: Progress
) -> Corpus:
    """The rows rendered, none longer than `sequence_length` tokens.

    `overlong` says what becomes of a longer one: drop, truncate (its head is kept) or error. A document
    without any token of the assistant's is dropped. Raises UserError naming `field` where nothing is left.
    """
    rows, corpus = list(rows), Corpus([])
    with progress.task(f"tokenize {field.rpartition('.')[2]}", total=len(rows), unit="rows") as task:
        for row in rows:
            document = chat.document(row["id"], read_messages(row["messages"], row_id=row["id"]))
            task.advance()
            if len(document) > sequence_length:
                if overlong == "error":
                    raise UserError(
                        f"row {document.id} has {len(document)} tokens, more than sequence_length ({sequence_length})",
                        field=field,
                        remedy="raise sequence_length, or set overlong to drop or truncate",
                    )
                corpus.left_out[f"overlong: {overlong}"] += 1
                if overlong == "drop":
                    continue
                document = document.head(sequence_length)
            if not document.loss_tokens:
                corpus.left_out["nothing of the assistant's in it"] += 1
                continue
            corpus.documents.append(document)
    for reason, count in corpus.left_out.items():
        log.warning("%s: %d of %d rows: %s", field, count, len(rows), reason)
    if not corpus.documents:
        raise UserError(
            f"leaves no document of its {len(rows)} rows ({_listed(corpus.left_out)})",
            field=field,
            remedy="raise sequence_length, or look at the rows",
        )
    return corpus


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in counts.items())
