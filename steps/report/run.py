"""The work of the step `report`."""

from __future__ import annotations

from posttrain.contract import StepContext
from posttrain.contract.files import write_atomic
from posttrain.report import collect, render
from steps.report import Config, Inputs, Outputs


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    found = collect(context.workspace, context.run, status=inputs.status, failures=inputs.failures)
    page = context.directory / "report.html"
    write_atomic(page, render(found, samples=config.samples))
    return Outputs(page=context.relative(page))
