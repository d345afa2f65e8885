"""Few-shot prompts: solved rows as earlier turns of the conversation, the same ones before every prompt.

Invariant: no prompt of the evaluation set is among the examples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from posttrain.errors import UserError
from posttrain.evaluation.rows import Row


def with_examples(rows: Sequence[Row], solved: pa.Table, count: int, *, field: str) -> list[Row]:
    """`rows` behind the first `count` conversations of `solved`, whose `messages` end with the assistant's.

    Of a row with a system message that message stays first, and those of the examples are left out. Raises
    UserError naming `field` where `solved` has too few that the set does not ask.
    """
    asked = {row.prompt for row in rows}
    turns: list[dict[str, str]] = []
    taken = 0
    for text in solved["messages"].to_pylist():
        messages = [m for m in json.loads(text) if m["role"] != "system"]
        if taken == count:
            break
        if not asked & {m["content"] for m in messages if m["role"] == "user"}:
            turns, taken = turns + messages, taken + 1
    if taken < count:
        remedy = "give a larger table, or ask for fewer examples"
        raise UserError(f"has only {taken} rows that the set does not ask", field=field, value=count, remedy=remedy)
    return [replace(row, messages=_behind(turns, row.messages)) for row in rows]


def _behind(turns: list[dict[str, str]], messages: list[dict[str, str]]) -> list[dict[str, str]]:
    system = [m for m in messages if m["role"] == "system"]
    return [*system, *turns, *(m for m in messages if m["role"] != "system")]
