"""The work of `prepare_data`: reads the sources, lets the pipeline decide, stores tables and card."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from posttrain.contract import Ref, StepContext
from posttrain.contract.files import write_atomic, write_json
from posttrain.data import card, pass_rate, pipeline, quarantine, schema
from posttrain.data.sources import read
from posttrain.data.sources.describe import describe
from posttrain.data.tokens import TokenCounter
from posttrain.data.track import Track
from posttrain.lake import write_table
from posttrain.models.layout import check_directory
from steps.prepare_data import Config, Inputs, Outputs, check

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    workspace, seed = context.workspace, context.seed
    check(config, workspace)
    model = context.locate(inputs.model, field="prepare_data.model")
    context_length = check_directory(model, field="prepare_data.model").context_length
    track = _track(context)
    counter = TokenCounter(model, track)
    labels = [source.label for source in config.sources]

    def store(name: str, table: pa.Table) -> Ref:
        return write_table(workspace, f"lake/{config.name}/{name}.lance", table)

    described = [describe(s, index, workspace=workspace, seed=seed) for index, s in enumerate(config.sources)]
    expected = sum(source.size for source in config.sources if source.kind == "reasoning_gym") or None
    rows = (row for index, s in enumerate(config.sources) for row in read(s, index, workspace=workspace, seed=seed))
    sound = pipeline.sound(track(rows, "read", expected), config, counter, context_length)
    refs = {"quarantine": store("quarantine", quarantine.to_table(sound.rejected, labels))}
    quarantine.check_share(sound.rejected, sound.total, config.quarantine_limit, refs["quarantine"].uri)

    rates = pass_rate.of(config.tiers, model, seed, track) if config.tiers.by == "pass_rate" else None
    sets = pipeline.divide(sound.examples, config, seed, count_tokens=counter, pass_rate=rates, track=track)
    refs["removed"] = store("removed", schema.removed_table(sets.removed, labels))
    refs["train"] = store("train", schema.to_table(sets.train, labels, with_target=True))
    refs["validation"] = store("validation", schema.to_table(sets.validation, labels, with_target=True))
    refs["evaluation"] = store("evaluation", schema.to_table(sets.evaluation, labels, with_target=False))

    named = {name: str(ref) for name, ref in refs.items()}
    value = card.describe(config, seed, described, sound, sets, named)
    write_json(context.directory / "card.json", value)
    write_atomic(page := context.directory / "card.md", card.to_markdown(value))
    log.info("rows: %s", ", ".join(f"{name} {count}" for name, count in value["rows"].items()))
    return Outputs(
        train=named["train"], validation=named["validation"], evaluation=named["evaluation"],
        rows_train=len(sets.train), rows_validation=len(sets.validation), rows_evaluation=len(sets.evaluation),
        rows_quarantined=len(sound.rejected), card=context.relative(page),
    )  # fmt: skip


def _track(context: StepContext) -> Track:
    def track(rows: Iterable[Any], name: str, total: int | None) -> Iterator[Any]:
        with context.progress.task(name, total=total) as task:
            for row in rows:
                yield row
                task.advance()

    return track
