"""The work of the step `rl`."""

from __future__ import annotations

from dataclasses import asdict

from posttrain.contract import StepContext
from posttrain.contract.pod import own_host, reached_at
from posttrain.training.rl.train import Links, train
from steps.rl import Config, Inputs, Outputs


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    weights = config.weights
    rollout = f"http://{inputs.rollout}:{config.rollout_port}" if inputs.rollout else ""
    coordinator = weights.coordinator or f"http://{reached_at(own_host())}:{weights.port}"
    links = Links(rollout, coordinator, weights.transport, weights.keep, weights.timeout)
    trained = train(
        context, config, model=inputs.model, checkpoint=inputs.checkpoint, experience=inputs.experience,
        reference=inputs.reference, links=links,
    )  # fmt: skip
    return Outputs(**asdict(trained))
