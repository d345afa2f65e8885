"""The work of the step `sft`."""

from __future__ import annotations

from dataclasses import asdict

from posttrain.contract import StepContext
from posttrain.training.documents import read_rows
from posttrain.training.sft import train_supervised
from steps.sft import Config, Inputs, Outputs


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    rows = read_rows(context.workspace, inputs.train, field=f"{context.step}.train")
    trained = train_supervised(
        context, config, model=inputs.model, train=inputs.train, rows=rows, validation=inputs.validation
    )
    return Outputs(**asdict(trained))
