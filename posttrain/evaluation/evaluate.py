"""One evaluation: sample every row, verify each answer while the engine goes on, keep the set's order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from posttrain.evaluation.rows import Row
from posttrain.evaluation.sampler import Completion, Sampler
from posttrain.evaluation.schema import How, Result
from posttrain.reward.score import score


def evaluate(
    sampler: Sampler, rows: Sequence[Row], how: How, on_row: Callable[[list[Result]], None] = lambda results: None
) -> list[Result]:
    """The results of all rows; `on_row` hears of each row's as they come, in whatever order that is."""
    by_row: list[list[Result]] = [[] for _ in rows]

    def take(index: int, completions: list[Completion]) -> None:
        by_row[index] = [_result(rows[index], n, completion, how) for n, completion in enumerate(completions)]
        on_row(by_row[index])

    sampler.sample([row.messages for row in rows], [row.id for row in rows], how.sampling, take)
    return [result for results in by_row for result in results]


def _result(row: Row, sample: int, completion: Completion, how: How) -> Result:
    verdict = score(row.verifier, row.answer, row.metadata, completion.text, form=how.form)
    return Result(
        id=row.id, tier=row.tier, sample=sample, prompt=row.prompt,
        messages=json.dumps(row.messages, ensure_ascii=False), completion=completion.text, tokens=completion.tokens,
        finish_reason=completion.finish_reason, correct=verdict.correct, well_formed=verdict.well_formed,
        extracted=verdict.extracted, answer=row.answer, verifier=row.verifier, metadata=row.metadata,
    )  # fmt: skip
