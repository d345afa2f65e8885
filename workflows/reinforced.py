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
from steps import etha, evaluate, report, reward, rl, rollout
from workflows.config import Reinforced
from workflows.profile import Profile
from workflows.templates.loop import Until
from workflows.templates.phases import prepare, release
from workflows.templates.route import WORKFLOW_FACTS, route


def build_reinforced(
    name: str, config: Reinforced, profile: Profile, *, run: str | None, start: StepSpec | None = None
) -> Workflow:
    """The route `name`; `start` is the supervised training before the loop."""
    with route(name, config, profile, run=run) as (workflow, r):
        with r.graph():
            prepared = prepare(r)
            base, data = prepared.base, prepared.data
            begun = base["model"]
            if start is not None:
                begun = r.task(start, model=begun, train=data["train"], validation=data["validation"])["model"]
            judge = r.task(reward.SPEC, after=[prepared.checked])
            sampler = r.task(rollout.SPEC, model=begun, reward=judge.url(config.reward.port), tasks=data["train"])
            trained = r.loop(
                rl.SPEC, evaluate.SPEC, etha.SPEC, Until(config.iterations, config.target), data=data["evaluation"],
                model=begun, experience="lake/{{workflow.name}}/experience.lance", reference=begun,
                rollout=sampler.address,
            )  # fmt: skip
            release(r, prepared, trained, trained["results"])
        r.finish(report.SPEC, **WORKFLOW_FACTS)
    return workflow
