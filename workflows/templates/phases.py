"""What every route to a released model begins with and ends with.

validate ─ prepare-model ─ prepare-data ─ baseline (evaluate) … gate ─ export ─ serve ─ verify
"""

from __future__ import annotations

from dataclasses import dataclass

from steps import evaluate, export, gate, prepare_data, prepare_model, serve, validate, verify
from workflows.templates.route import Node, Reference, Route


@dataclass(frozen=True)
class Prepared:
    """The base model, the data, and how the model as it came is evaluated on it."""

    checked: Node
    base: Node
    data: Node
    baseline: Node


def prepare(r: Route) -> Prepared:
    checked = r.check(validate.SPEC)
    base = r.task(prepare_model.SPEC, after=[checked])
    data = r.task(prepare_data.SPEC, model=base["model"])
    baseline = r.task(evaluate.SPEC, "baseline", model=base["model"], data=data["evaluation"])
    return Prepared(checked, base, data, baseline)


def release(r: Route, before: Prepared, trained: Node, results: Reference) -> None:
    """Release `trained`, which has `results`, where the gate lets it; serve it and verify what is served."""
    baseline = before.baseline["results"]
    gated = r.task(gate.SPEC, baseline=baseline, candidate=results)
    released = r.task(
        export.SPEC,
        model=trained["model"],
        checkpoint=trained["checkpoint"],
        base=before.base["model"],
        train=before.data["train"],
        baseline_results=baseline,
        results=results,
        verdict=gated["verdict"],
    )
    served = r.task(serve.SPEC, release=released["release"])
    r.task(verify.SPEC, release=released["release"], results=results, address=served.address)
