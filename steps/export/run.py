from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posttrain.contract import Ref, StepContext
from posttrain.contract import record as records
from posttrain.contract.files import os_errors, staged_directory
from posttrain.errors import UserError
from posttrain.evaluation.schema import from_table
from posttrain.evaluation.summary import scores
from posttrain.lake import open_table
from posttrain.models.layout import check_directory
from posttrain.serving.card import Facts, render
from posttrain.serving.load_check import check, compare
from posttrain.serving.release import assemble, check_digest, write_manifest
from posttrain.tracking import register
from steps.export import Config, Inputs, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    model, checkpoint, base = (
        context.locate(ref, field=f"export.{name}")
        for name, ref in (("model", inputs.model), ("checkpoint", inputs.checkpoint), ("base", inputs.base))
    )
    check_directory(model, field="export.model")
    check_digest(model, inputs.model, field="export.model")
    training = _training(context, checkpoint)
    before, after = (
        _scores(context, ref, field=f"export.{name}", confidence=config.confidence)
        for name, ref in (("baseline_results", inputs.baseline_results), ("results", inputs.results))
    )
    conversations = _conversations(context, inputs.train, config.probes)

    with context.progress.task("compare with the checkpoint", 1, "models") as task:
        comparison = compare(model, checkpoint, base, training.config, conversations)
        task.advance()
    check(comparison, config.tolerance)
    log.info("log-probabilities are the checkpoint's: at most %.2g apart", comparison.largest)

    name = config.name or Path(Ref.parse(inputs.base).uri).name
    facts = Facts(
        name=name, run=context.run, license=config.license, base=inputs.base, train=inputs.train,
        evaluated_on=inputs.results, checkpoint=inputs.checkpoint, verdict=inputs.verdict, before=before, after=after,
        training=asdict(training), difference=(comparison.largest, comparison.mean), confidence=config.confidence,
    )  # fmt: skip
    final = context.workspace / "releases" / name / context.run
    with os_errors(final), staged_directory(final) as staging:
        assemble(model, staging, render(facts))
        lineage = asdict(inputs) | {"training": training.request, "before": before, "after": after}
        digest = write_manifest(staging, lineage)
    release = Ref(context.relative(final), digest=digest)
    tags = {
        "digest": digest, "run": context.run, "base": inputs.base, "train": inputs.train,
        "accuracy": f"{after['accuracy']:.4f}", "verdict": inputs.verdict,
    }  # fmt: skip
    return Outputs(release=str(release), registered=register(context, name, final, tags))


def _training(context: StepContext, checkpoint: Path) -> records.Record:
    """The record of the step that wrote the checkpoint, which stands in checkpoints/RUN/STEP/."""
    step = context.workspace / "runs" / checkpoint.parent.relative_to(context.workspace / "checkpoints")
    found = records.read(step)
    if found is None:
        raise UserError("has no record of its training", field="export.checkpoint", remedy=f"looked in {step}")
    return found


def _scores(context: StepContext, ref: str, *, field: str, confidence: float) -> dict[str, Any]:
    table = open_table(context.workspace, ref, field=field, verify=True).to_table()
    return scores(from_table(table, field=field)[0], confidence)


def _conversations(context: StepContext, ref: str, count: int) -> list[list[dict[str, str]]]:
    rows = open_table(context.workspace, ref, field="export.train").to_table(columns=["messages"], limit=count)
    if not rows.num_rows:
        raise UserError("holds no rows", field="export.train", value=ref)
    return [json.loads(messages) for messages in rows["messages"].to_pylist()]
