"""What the routes with reinforcement learning share.

validate ─ prepare-model ─ prepare-data ┬ baseline (evaluate) ─────────────────────────┐
                                        ├ [sft | cold-start] ─ rollout ┐               │
                                        └ reward ──────────────┴───────┴ loop ─ gate ──┴ export ─ serve ─ verify

reward and rollout are daemons over the whole loop; the coordinator of weights is the sidecar of each iteration. At the
end, however it came: report
"""

from __future__ import annotations

from hera.workflows import Workflow

from posttrain.contract import StepSpec
from steps import (
    etha,
    evaluate,
    export,
    gate,
    prepare_data,
    prepare_model,
    report,
    reward,
    rl,
    rollout,
    serve,
    validate,
    verify,
)
from workflows.config import Reinforced
from workflows.profile import Profile
from workflows.templates.loop import Until
from workflows.templates.route import WORKFLOW_FACTS, route


def build_reinforced(
    name: str, config: Reinforced, profile: Profile, *, run: str | None, start: StepSpec | None = None
) -> Workflow:
    """The route `name`; `start` is the supervised training before the loop."""
    with route(name, config, profile, run=run) as (workflow, r):
        with r.graph():
            checked = r.check(validate.SPEC)
            base = r.task(prepare_model.SPEC, after=[checked])
            data = r.task(prepare_data.SPEC, model=base["model"])
            baseline = r.task(evaluate.SPEC, "baseline", model=base["model"], data=data["evaluation"])
            begun = base["model"]
            if start is not None:
                begun = r.task(start, model=begun, train=data["train"], validation=data["validation"])["model"]
            judge = r.task(reward.SPEC, after=[checked])
            sampler = r.task(rollout.SPEC, model=begun, reward=judge.url(config.reward.port), tasks=data["train"])
            trained = r.loop(
                rl.SPEC, evaluate.SPEC, etha.SPEC, Until(config.iterations, config.target), data=data["evaluation"],
                model=begun, experience="lake/{{workflow.name}}/experience.lance", reference=begun,
                rollout=sampler.address,
            )  # fmt: skip
            gated = r.task(gate.SPEC, baseline=baseline["results"], candidate=trained["results"])
            released = r.task(
                export.SPEC,
                model=trained["model"],
                checkpoint=trained["checkpoint"],
                base=base["model"],
                train=data["train"],
                baseline_results=baseline["results"],
                results=trained["results"],
                verdict=gated["verdict"],
            )
            served = r.task(serve.SPEC, release=released["release"])
            r.task(verify.SPEC, release=released["release"], results=trained["results"], address=served.address)
        r.finish(report.SPEC, **WORKFLOW_FACTS)
    return workflow
