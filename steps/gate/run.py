from __future__ import annotations

import logging

from posttrain.contract import StepContext
from posttrain.evaluation.gate import GateFailed, decide
from posttrain.evaluation.schema import from_table
from posttrain.lake import open_table
from steps.gate import Config, Inputs, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    (baseline, _), (candidate, _) = (
        from_table(open_table(context.workspace, ref, field=field, verify=True).to_table(), field=field)
        for ref, field in ((inputs.baseline, "gate.baseline"), (inputs.candidate, "gate.candidate"))
    )
    decision = decide(baseline, candidate, config, seed=context.seed)
    if decision.reasons:
        raise GateFailed(decision.verdict)
    log.info("%s", decision.verdict)
    return Outputs(*decision.difference, verdict=decision.verdict)
