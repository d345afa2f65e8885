"""Scores and samples of a run's evaluations, from what each wrote beside its record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posttrain.report.model import Answer, Evaluation, Sample, Score, StepView

JSON = dict[str, Any]

PACKAGE, GATE = "steps.evaluate", "steps.gate"


def read_evaluations(workspace: Path, steps: Sequence[StepView]) -> tuple[tuple[Evaluation, ...], tuple[Sample, ...]]:
    """The run's evaluations, the gate's baseline first, and the samples that all of them answered."""
    found = [s for s in steps if s.record and s.record["package"] == PACKAGE]
    gate = next((s.record for s in steps if s.record and s.record["package"] == GATE), None)
    if gate:
        order = [gate["inputs"]["baseline"], gate["inputs"]["candidate"]]
        found = [s for ref in order for s in found if s.record and s.record["outputs"]["results"] == ref]
    summaries = [_summary(workspace, s.record["outputs"]["summary"]) for s in found if s.record]
    evaluations = tuple(
        _evaluation(s.name, s.record["outputs"], summary)
        for s, summary in zip(found, summaries, strict=True)
        if s.record
    )
    return evaluations, _samples(summaries)


def _summary(workspace: Path, name: str) -> JSON:
    try:
        return json.loads((workspace / name).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _evaluation(name: str, outputs: JSON, summary: JSON) -> Evaluation:
    return Evaluation(
        name=name,
        accuracy=Score(outputs["accuracy"], outputs["accuracy_low"], outputs["accuracy_high"], outputs["rows"]),
        format_rate=outputs["format_rate"],
        mean_tokens=outputs["mean_tokens"],
        tiers={
            tier: Score(t["accuracy"], t["accuracy_low"], t["accuracy_high"], t["rows"])
            for tier, t in summary.get("tiers", {}).items()
        },
    )


def _samples(summaries: Sequence[JSON]) -> tuple[Sample, ...]:
    """Samples by id, where every evaluation has an answer."""
    if not summaries:
        return ()
    by_id = [{sample["id"]: sample for sample in summary.get("samples", [])} for summary in summaries]
    return tuple(
        Sample(
            id=key,
            prompt=first["prompt"],
            expected=first["answer"],
            tier=first["tier"],
            answers=tuple(Answer(each[key]["completion"], each[key]["correct"]) for each in by_id),
        )
        for key, first in by_id[0].items()
        if all(key in each for each in by_id)
    )
