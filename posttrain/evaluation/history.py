"""The history: the stream `lake/evaluations.lance`, to which each evaluation adds a row for each of its samples.

Invariant: an evaluation, which is a run's step and the digest of its results, is there once and as a whole,
however often the step is started again, wherever it died before, and whoever ends at the same moment.

The results themselves are a table of the step, pinned by its digest; the history is for questions over many runs.
All evaluations come from one producer, which is held only for as long as one looks whether it is there and adds
it: a name for each run would leave a control in the stream for every run there ever was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from posttrain.evaluation.schema import How, Result
from posttrain.lakestream import EVALUATIONS, ProducerFenced, Stream

URI = "lake/evaluations.lance"
_PRODUCER = "evaluate"
_LONGEST_PAUSE = 0.2  # seconds, after another step came between


@dataclass(frozen=True)
class Evaluation:
    """`model` and `data` are references, `digest` is that of the table of results."""

    run: str
    step: str
    model: str
    data: str
    digest: str


def remember(workspace: Path, evaluation: Evaluation, results: Sequence[Result], how: How) -> bool:
    """Add an evaluation to the history of `workspace`; whether it was new. Raises StreamError."""
    stream = Stream.create(workspace / URI, EVALUATIONS)
    while True:
        producer = stream.producer(_PRODUCER)
        new = not is_known(stream, evaluation)
        try:
            if new:
                producer.append(to_rows(evaluation, results, how, time.time()), (producer.cursor or 0) + 1)
            break
        except ProducerFenced as fenced:
            if fenced.landed:
                break
            time.sleep(random.random() * _LONGEST_PAUSE)
    stream.maintain(force=False)
    return new


def is_known(stream: Stream, evaluation: Evaluation) -> bool:
    named = f"run = '{evaluation.run}' AND step = '{evaluation.step}' AND digest = '{evaluation.digest}'"
    return any(batch.num_rows for batch in stream.snapshot().to_batches(columns=["run"], filter=named))


def to_rows(evaluation: Evaluation, results: Sequence[Result], how: How, ended: float) -> pa.Table:
    """The rows of the history; `ended` in seconds since 1970. Prompts are not among them: `data` has them by `id`."""
    same = {
        "run": evaluation.run, "step": evaluation.step, "digest": evaluation.digest, "ended": round(ended * 1e6),
        "model": evaluation.model, "data": evaluation.data, "how": how.to_json(),
    }  # fmt: skip
    columns = [
        [same[name] if name in same else getattr(result, name) for result in results]
        for name in EVALUATIONS.arrow.names
    ]
    return pa.table(columns, schema=EVALUATIONS.arrow)
