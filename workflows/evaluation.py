"""The route `evaluation`: one model against one evaluation set, on a schedule.

validate ─ prepare-model ─ prepare-data ─ evaluate          at the end: report
"""

from __future__ import annotations

from hera.workflows import Workflow

from steps import evaluate, prepare_data, prepare_model, report, validate
from workflows.config import Evaluation
from workflows.profile import Profile
from workflows.templates.route import WORKFLOW_FACTS, route


def build(config: Evaluation, profile: Profile, *, run: str | None = None) -> Workflow:
    """A CronWorkflow; given a `run`, the one Workflow of that name that it would start."""
    schedule = None if run else config.schedule
    with route("evaluation", config, profile, run=run, schedule=schedule, timezone=config.timezone) as (workflow, r):
        with r.graph():
            checked = r.check(validate.SPEC)
            model = r.task(prepare_model.SPEC, after=[checked])
            data = r.task(prepare_data.SPEC, model=model["model"])
            r.task(evaluate.SPEC, model=model["model"], data=data["evaluation"])
        r.finish(report.SPEC, **WORKFLOW_FACTS)
    return workflow
