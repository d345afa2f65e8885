"""The results of an evaluation: one row for each sample, in the order of the set and of the samples.

The table's metadata keeps how it was made (`posttrain.evaluation`: sampling, form of the answer), so that whoever
asks the same questions again asks them in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from posttrain.errors import UserError
from posttrain.evaluation.settings import Sampling
from posttrain.reward.score import AnswerForm

HOW = b"posttrain.evaluation"

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("tier", pa.string()),
        ("sample", pa.int32()),
        ("prompt", pa.string()),
        ("messages", pa.string()),
        ("completion", pa.string()),
        ("tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("correct", pa.bool_()),
        ("well_formed", pa.bool_()),
        ("extracted", pa.string()),
        ("answer", pa.string()),
        ("verifier", pa.string()),
        ("metadata", pa.string()),
    ]
)


@dataclass(frozen=True)
class Result:
    """One sample of one prompt. `prompt` is the last message's text, `messages` the JSON of all of them."""

    id: str
    tier: str
    sample: int
    prompt: str
    messages: str
    completion: str
    tokens: int
    finish_reason: str
    correct: bool
    well_formed: bool
    extracted: str | None
    answer: str
    verifier: str
    metadata: str


@dataclass(frozen=True)
class How:
    sampling: Sampling
    form: AnswerForm

    def to_json(self) -> str:
        return json.dumps({"sampling": asdict(self.sampling), "answer": asdict(self.form)}, sort_keys=True)


def to_table(results: Sequence[Result], how: How) -> pa.Table:
    columns = {f.name: [getattr(result, f.name) for result in results] for f in fields(Result)}
    return pa.table(columns, schema=SCHEMA.with_metadata({HOW: how.to_json().encode()}))


def from_table(table: pa.Table, *, field: str) -> tuple[list[Result], How]:
    """The results and how they were made. Raises UserError where the table holds none, or something else."""
    told = (table.schema.metadata or {}).get(HOW)
    if told is None or any(name not in table.column_names for name in SCHEMA.names):
        raise UserError("holds no results of an evaluation", field=field, remedy="give the results of evaluate")
    made: dict[str, Any] = json.loads(told)
    results = [Result(**row) for row in table.select(SCHEMA.names).to_pylist()]
    if not results:
        raise UserError("holds no results", field=field, remedy="evaluate a set with at least one row")
    return results, How(Sampling(**made["sampling"]), AnswerForm(**made["answer"]))
