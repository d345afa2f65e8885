from __future__ import annotations

import logging
import time

from posttrain.contract import StepContext
from posttrain.contract.files import write_json
from posttrain.evaluation.evaluate import evaluate
from posttrain.evaluation.few_shot import with_examples
from posttrain.evaluation.history import Evaluation, remember
from posttrain.evaluation.rows import read_rows
from posttrain.evaluation.sampler import Sampler
from posttrain.evaluation.schema import How, Result, to_table
from posttrain.evaluation.summary import summarize
from posttrain.lake import open_table, write_table
from posttrain.serving.release import check_digest
from steps.evaluate import Config, Inputs, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    started = time.monotonic()
    model = context.locate(inputs.model, field="evaluate.model")
    check_digest(model, inputs.model, field="evaluate.model")
    table = open_table(context.workspace, inputs.data, field="evaluate.data", verify=True).to_table()
    rows = read_rows(table, field="evaluate.data", limit=config.limit)
    if config.few_shot:
        field = "evaluate.examples"
        solved = open_table(context.workspace, config.examples, field=field, verify=True).to_table(columns=["messages"])
        rows = with_examples(rows, solved, config.few_shot, field=field)
    how = How(config.sampling, config.answer)

    with context.progress.task("load model", 1, "models") as task:
        sampler = Sampler(model, config.engine, seed=context.seed, field="evaluate.model")
        task.advance()
    right = samples = tokens = 0
    sampling = time.monotonic()
    with context.progress.task("evaluate", len(rows), "prompts") as task:

        def show(results: list[Result]) -> None:
            nonlocal right, samples, tokens
            right += sum(r.correct for r in results)
            samples += len(results)
            tokens += sum(r.tokens for r in results)
            rate = tokens / (time.monotonic() - sampling)
            task.advance(1, accuracy=right / samples, tokens_per_second=rate)

        results = evaluate(sampler, rows, how, show)

    summary = summarize(results, confidence=config.confidence, shown=config.shown)
    stored = write_table(
        context.workspace, context.relative(context.directory / "results.lance"), to_table(results, how)
    )
    evaluation = Evaluation(context.run, context.step, inputs.model, inputs.data, str(stored.digest))
    remember(context.workspace, evaluation, results, how)
    path = context.directory / "summary.json"
    write_json(path, summary)
    log.info(
        "accuracy %.1f %% (%.1f to %.1f), format %.1f %%, %.1f tokens an answer",
        *(100 * summary[key] for key in ("accuracy", "accuracy_low", "accuracy_high", "format_rate")),
        summary["mean_tokens"],
    )
    return Outputs(
        results=str(stored),
        summary=context.relative(path),
        accuracy=summary["accuracy"],
        accuracy_low=summary["accuracy_low"],
        accuracy_high=summary["accuracy_high"],
        format_rate=summary["format_rate"],
        mean_tokens=summary["mean_tokens"],
        rows=summary["rows"],
        seconds=round(time.monotonic() - started, 3),
    )
