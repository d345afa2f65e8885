"""The rows of an evaluation set, as the prepared tables hold them.

Invariant: ids are distinct, so that two evaluations of one set can be paired by them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from posttrain.errors import UserError

COLUMNS = ("id", "messages", "answer", "verifier", "metadata", "tier")


@dataclass(frozen=True)
class Row:
    """`messages` ends with the user's; `metadata` is JSON text for the verifier."""

    id: str
    messages: list[dict[str, str]]
    answer: str
    verifier: str
    metadata: str
    tier: str

    @property
    def prompt(self) -> str:
        """The text of the last message: what a reader takes for the question."""
        return self.messages[-1]["content"]


def read_rows(table: pa.Table, *, field: str, limit: int = 0) -> list[Row]:
    """The rows of `table`, the first `limit` of them where that is not 0. Raises UserError naming `field`."""
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise UserError(f"has no column {missing[0]}", field=field, remedy="give a table that prepare_data wrote")
    taken = table.select(COLUMNS).slice(0, limit or None).to_pylist()
    if not taken:
        raise UserError("the evaluation set is empty", field=field, remedy="give a set with at least one row")
    rows = [Row(**(row | {"messages": json.loads(row["messages"])})) for row in taken]
    check_distinct([row.id for row in rows], field=field)
    return rows


def check_distinct(ids: Sequence[str], *, field: str) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise UserError("two rows have the same id", field=field, value=each, remedy="give every row its own id")
        seen.add(each)
