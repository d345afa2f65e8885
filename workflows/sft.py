"""The route `sft`: a base model and data go in, a released, served and verified model comes out.

validate ─ prepare-model ─ prepare-data ┬ baseline (evaluate) ┐
                                        └ sft ─── evaluate ───┴ gate ─ export ─ serve ─ verify

at the end, however it came: report
"""

from __future__ import annotations

from hera.workflows import Workflow

from steps import cold_start, evaluate, export, gate, prepare_data, prepare_model, report, serve, sft, validate, verify
from workflows.config import Sft
from workflows.profile import Profile
from workflows.templates.route import WORKFLOW_FACTS, route


def build(config: Sft, profile: Profile, *, run: str | None = None) -> Workflow:
    """The workflow, called `run` or by a generated name."""
    train = {"sft": sft.SPEC, "cold_start": cold_start.SPEC}[config.start]
    with route("sft", config, profile, run=run) as (workflow, r):
        with r.graph():
            checked = r.check(validate.SPEC)
            base = r.task(prepare_model.SPEC, after=[checked])
            data = r.task(prepare_data.SPEC, model=base["model"])
            baseline = r.task(evaluate.SPEC, "baseline", model=base["model"], data=data["evaluation"])
            trained = r.task(train, model=base["model"], train=data["train"], validation=data["validation"])
            scored = r.task(evaluate.SPEC, model=trained["model"], data=data["evaluation"])
            gated = r.task(gate.SPEC, baseline=baseline["results"], candidate=scored["results"])
            released = r.task(
                export.SPEC,
                model=trained["model"],
                checkpoint=trained["checkpoint"],
                base=base["model"],
                train=data["train"],
                baseline_results=baseline["results"],
                results=scored["results"],
                verdict=gated["verdict"],
            )
            served = r.task(serve.SPEC, release=released["release"])
            r.task(verify.SPEC, release=released["release"], results=scored["results"], address=served.address)
        r.finish(report.SPEC, **WORKFLOW_FACTS)
    return workflow
