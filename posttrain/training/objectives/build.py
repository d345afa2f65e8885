"""From the configuration to the objective that the learner is given.

Letters: P positions with loss of a micro-batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

import torch

from posttrain.errors import UserError
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.correction import correction
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.objectives.kl import kl
from posttrain.training.objectives.tokens import Entropy, Experience, Loss, Mean, Policy, Total

Function = Callable[..., Loss | torch.Tensor]


class Objective:
    """A loss to be summed over micro-batches and divided by `normaliser`. Its callers need not know which one it is.

    `unit`: how many sequences that follow one another lie in one micro-batch (a pair: 2). `needs`:
    the signals without which it has no value. `entropy`: whether the policy's is to be computed, and with gradient.
    `critic`: whether values are.
    """

    def __init__(self, function: Function, config: ObjectiveConfig, options: dict[str, Any]):
        self.config, self.unit = config, config.kind.unit
        self._function, self._options = function, options
        self.entropy: Entropy = "trained" if config.entropy else "measured" if config.kind.samples else "none"
        self.critic = config.baseline == "critic"
        self.needs = frozenset(
            name
            for name, needed in (
                ("advantages", config.kind.samples),
                ("sampler_logprobs", config.correction.mode != "none"),
                ("reference_logprobs", config.kl.coefficient or config.name == "dpo"),
                ("old_values", self.critic),
                ("returns", self.critic),
            )
            if needed
        )

    def __call__(self, policy: Policy, experience: Experience) -> Total:
        """The loss of a micro-batch, summed. Raises ValueError where a signal that it `needs` is not there."""
        metrics: dict[str, Mean] = {}
        if "sampler_logprobs" in experience or self.config.correction.mode != "none":
            weights_P, of_sampler = correction(policy, experience, self.config.correction)
            metrics |= of_sampler
            if self.config.correction.mode != "none":
                experience = experience.with_signal("advantages", experience["advantages"] * weights_P)
        made = self._function(policy, experience, **self._options)
        loss_P, own = made if isinstance(made, Loss) else Loss(made)
        metrics |= own
        if self.config.kind.samples and ("reference_logprobs" in experience or self.config.kl.coefficient):
            kl_P = kl(policy.logprobs_P, experience["reference_logprobs"], self.config.kl.estimator)
            metrics["kl"] = Mean.of(kl_P)
            if self.config.kl.place == "loss" and self.config.kl.coefficient:
                loss_P = loss_P + self.config.kl.coefficient * kl_P
        if policy.entropy_P is not None:
            metrics["entropy"] = Mean.of(policy.entropy_P)
            if self.config.entropy:
                loss_P = loss_P - self.config.entropy * policy.entropy_P
        if self.config.aggregated == "sequences":
            loss_P = loss_P / experience.spread_P(experience.lengths_S)
        return Total(loss_P.sum(), metrics)

    def normaliser(self, *, tokens: int, sequences: int) -> float:
        """What the summed loss is divided by; the counts are of what is trained on, over all micro-batches and ranks.

        It is 1 where there is nothing, so that the loss of nothing is 0.
        """
        sizes = {"tokens": tokens, "sequences": sequences, "constant": sequences * self.config.length}
        return max(sizes[self.config.aggregated], 1)


def build(config: ObjectiveConfig) -> Objective:
    """Raises UserError where `module:function` is not there or does not take the options."""
    if config.name in KINDS:
        module = import_module(f"posttrain.training.objectives.{config.name}")
        return Objective(getattr(module, config.name), config, asdict(config.resolved_options()))
    return Objective(_own(config), config, config.options)


CROSS_ENTROPY = build(ObjectiveConfig("cross_entropy"))


def _own(config: ObjectiveConfig) -> Function:
    where, _, name = config.name.partition(":")
    try:
        function = getattr(import_module(where), name)
    except (ImportError, AttributeError) as problem:
        raise UserError(
            f"cannot be imported: {problem}", field="objective.name", value=config.name,
            remedy="put the module on PYTHONPATH, or correct the name",
        ) from None  # fmt: skip
    try:
        inspect.signature(function).bind(None, None, **config.options)
    except TypeError as problem:
        raise UserError(
            f"does not fit {config.name}{inspect.signature(function)}: {problem}", field="objective.options",
            value=config.options, remedy="it is called as function(policy, experience, **options)",
        ) from None  # fmt: skip
    return function
