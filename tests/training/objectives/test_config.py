"""Which objective runs is configuration: its keys, their errors, and a function of one's own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
import torch

from posttrain.contract.config import resolve
from posttrain.errors import UserError
from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.kinds import KINDS
from posttrain.training.objectives.tokens import Experience, Loss, Mean, Policy
from tests.training.objectives.support import batch, outcome


@dataclass
class Step:
    """A step's configuration that has an objective, as `rl` will."""

    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)


def chosen(*overrides: str) -> ObjectiveConfig:
    return resolve(Step, overrides=overrides, where="rl").objective


@pytest.mark.parametrize("name", KINDS)
def test_every_objective_is_chosen_by_its_name(name):
    more = ["objective.length=64"] if name == "dr_grpo" else []
    assert build(chosen(f"objective.name={name}", *more)).config.name == name


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("name=grop", "name: is no objective.*write one of cross_entropy, grpo"),
        ("options.clip_hihg=0.3", "options.clip_hihg: is no option of grpo .*its options: clip_low, clip_high"),
        ("options.beta=0.3", r"options.beta: is no option of grpo \(beta is an option of dpo\)"),
        ("name=gspo options.ratio_max=2", r"options.ratio_max: .* gspo \(ratio_max is an option of cispo\)"),
        ("options.clip_low=2", r"options.clip_low: must lie in \[0, 1\]"),
        ("options.clip_low=wide", "options.clip_low: is not a number"),
        ("name=topr options.negative_low=2", "options.negative_high: must be at least 2"),
        ("kl.estimator=k4", "kl.estimator: is not known"),
        ("kll.estimator=k3", "kll: unknown key"),
        ("name=gspo aggregation=tokens", "aggregation: gspo is a loss of whole sequences"),
        ("name=dr_grpo", "length: is needed"),
        ("name=dpo kl.coefficient=1", "kl.coefficient: has no meaning for dpo"),
        ("name=dpo advantage.scale=batch", "advantage: has no meaning for dpo"),
        ("advantage.baseline=critic", "advantage.baseline: a critic is the baseline of ppo"),
        ("name=ppo advantage.baseline=group", "advantage.baseline: a critic is the baseline of ppo"),
        ("name=ppo advantage.scale=group", "advantage.scale: tokens have no group"),
        ("correction.low=3", "correction.high: must be at least 3"),
        ("overlong.limit=10 overlong.buffer=20", r"overlong.buffer: must lie in \[1, 10\]"),
    ],
)
def test_what_makes_no_sense_is_named(overrides, said):
    with pytest.raises(UserError) as refused:
        chosen(*(f"objective.{override}" for override in overrides.split()))
    assert re.match(rf"(rl\.)?objective\.{said}", str(refused.value))


def squared(policy: Policy, experience: Experience, *, power: int = 2, scale: float) -> Loss:
    loss_P = scale * experience["advantages"] * policy.logprobs_P**power
    return Loss(loss_P, {"power": Mean.of(torch.full_like(loss_P, power))})


def bare(policy: Policy, experience: Experience) -> torch.Tensor:
    return -policy.logprobs_P * experience["confidence"]


def test_a_function_of_ones_own_is_an_objective_like_any_other():
    made = batch((2, 3))
    objective = build(chosen(f"objective.name={__name__}:squared", "objective.options.scale=3"))
    loss, by_leaf, metrics = outcome(objective, made)
    logprobs_P, advantages_P = made.logprobs_P.detach(), made.signals["advantages"]
    torch.testing.assert_close(loss, (3 * advantages_P * logprobs_P**2).mean())
    torch.testing.assert_close(by_leaf[0], 6 * advantages_P * logprobs_P / 5)
    assert metrics["power"].total / metrics["power"].weight == 2
    aggregated = build(chosen(f"objective.name={__name__}:bare", "objective.aggregation=sequences"))
    weighed = made.with_signals(confidence=torch.ones(5).double())
    torch.testing.assert_close(outcome(aggregated, weighed)[0], -(logprobs_P[:2].mean() + logprobs_P[2:].mean()) / 2)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("absent.module:f", {}, "cannot be imported: No module named 'absent'"),
        (f"{__name__}:nothing", {}, "cannot be imported.*has no attribute 'nothing'"),
        (f"{__name__}:squared", {}, r"does not fit .*:squared\(policy.*: missing a required argument: 'scale'"),
        (f"{__name__}:squared", {"scale": 1, "exponent": 2}, "got an unexpected keyword argument 'exponent'"),
    ],
)
def test_a_function_that_does_not_fit_is_named(name, options, said):
    with pytest.raises(UserError, match=said):
        build(ObjectiveConfig(name, options))
