"""The route `sft`: a base model and data go in, a released, served and verified model comes out.

validate ─ prepare-model ─ prepare-data ┬ baseline (evaluate) ┐
                                        └ sft ─── evaluate ───┴ gate ─ export ─ serve ─ verify

at the end, however it came: report
"""

from __future__ import annotations

from hera.workflows import Workflow

from steps import cold_start, evaluate, report, sft
from workflows.config import Sft
from workflows.profile import Profile
from workflows.templates.phases import prepare, release
from workflows.templates.route import WORKFLOW_FACTS, route


def build(config: Sft, profile: Profile, *, run: str | None = None) -> Workflow:
    """The workflow, called `run` or by a generated name."""
    train = {"sft": sft.SPEC, "cold_start": cold_start.SPEC}[config.start]
    with route("sft", config, profile, run=run) as (workflow, r):
        with r.graph():
            prepared = prepare(r)
            base, data = prepared.base, prepared.data
            trained = r.task(train, model=base["model"], train=data["train"], validation=data["validation"])
            scored = r.task(evaluate.SPEC, model=trained["model"], data=data["evaluation"])
            release(r, prepared, trained, scored["results"])
        r.finish(report.SPEC, **WORKFLOW_FACTS)
    return workflow
