"""The work of the step `cold_start`."""

from __future__ import annotations

import logging
from dataclasses import asdict

from posttrain.contract import StepContext
from posttrain.contract.files import write_json
from posttrain.training.cold_start import by_verifier, select
from posttrain.training.documents import read_rows
from posttrain.training.sft import train_supervised
from steps.cold_start import Config, Inputs, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    rows = read_rows(context.workspace, inputs.train, field=f"{context.step}.train")
    chosen = select(rows, config.selection, seed=context.seed, verify=by_verifier)
    log.info(
        "%d of %d rows chosen; by tier: %s; left out: %s", len(chosen.rows), len(rows), chosen.tiers, chosen.left_out
    )
    listing = context.directory / "selection.json"
    write_json(
        listing,
        {"rows": [row["id"] for row in chosen.rows], "tiers": chosen.tiers, "left_out": chosen.left_out},
    )
    trained = train_supervised(
        context, config, model=inputs.model, train=inputs.train, rows=chosen.rows, validation=inputs.validation
    )
    return Outputs(rows=len(chosen.rows), selection=context.relative(listing), **asdict(trained))
