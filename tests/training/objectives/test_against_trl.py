"""TRL's own loss code on the same tensors gives the same loss and gradient.

Its trainers' `_compute_loss` runs as it is; only what stands around it (the model's forward pass, the processes) is
replaced by what the test knows. TRL pads, so that its [B, T] are filled from the flat tokens.

Letters: B sequences, T tokens of the longest.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import Correction, Kl, ObjectiveConfig
from tests.training.objectives.support import Batch, batch, gradients, outcome

LENGTHS = (4, 1, 7, 3, 2, 5)


@pytest.fixture(scope="module")
def trl():
    utilities = pytest.importorskip("trl.import_utils")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(utilities, "is_vllm_available", lambda *_, **__: False)  # 9 s that no loss needs
        from trl.trainer.dpo_trainer import DPOTrainer
        from trl.trainer.grpo_trainer import GRPOTrainer
        from trl.trainer.rloo_trainer import RLOOTrainer
    return SimpleNamespace(grpo=GRPOTrainer, rloo=RLOOTrainer, dpo=DPOTrainer)


def padded(made: Batch, values_P: torch.Tensor, filler: float = 0.0) -> torch.Tensor:
    """[B, T]"""
    return torch.nn.utils.rnn.pad_sequence(values_P.split(list(made.lengths)), batch_first=True, padding_value=filler)


def advantages_of(made: Batch) -> torch.Tensor:
    """[B]: all tokens of a sequence have the same one."""
    return padded(made, made.signals["advantages"])[:, 0]


def stand_in(made: Batch, **settings: Any) -> SimpleNamespace:
    """All of a trainer that its loss asks for, in one process with one micro-batch."""
    one = SimpleNamespace(
        num_processes=1, device="cpu", sync_gradients=True,
        gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, **_: x,
    )  # fmt: skip
    scored = (padded(made, made.logprobs_P), padded(made, made.entropy_P), None)
    return SimpleNamespace(
        accelerator=one, model=SimpleNamespace(training=True), aux_loss_enabled=False, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, current_gradient_accumulation_steps=1, use_adaptive_entropy=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: scored, _metrics=defaultdict(lambda: defaultdict(list)),
        _tp_size=1, _total_train_tokens=0, **settings,
    )  # fmt: skip


def grpo_loss(trl, made: Batch, loss_type: str, *, level="token", low=0.2, high=0.2, beta=0.0, entropy=0.0, ratio=None):
    trainer = stand_in(
        made, loss_type=loss_type, importance_sampling_level=level, epsilon_low=low, epsilon_high=high, beta=beta,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        max_completion_length=9, entropy_coef=entropy, _entropy_bonus_enabled=entropy > 0,
        use_vllm=ratio is not None, vllm_importance_sampling_correction=ratio is not None,
    )  # fmt: skip
    mask_BT = padded(made, torch.ones_like(made.entropy_P))
    inputs = {
        "prompt_ids": mask_BT[:, :0].long(), "prompt_mask": mask_BT[:, :0].long(), "completion_ids": mask_BT.long(),
        "completion_mask": mask_BT.long(), "advantages": advantages_of(made),
        "ref_per_token_logps": padded(made, made.signals["reference_logprobs"]),
        "num_items_in_batch": mask_BT.sum(), "importance_sampling_ratio": ratio,
    }  # fmt: skip
    if "old_logprobs" in made.signals:
        inputs["old_per_token_logps"] = padded(made, made.signals["old_logprobs"])
    return trl.grpo._compute_loss(trainer, None, inputs)


def assert_same(ours: ObjectiveConfig, made: Batch, theirs: torch.Tensor) -> None:
    loss, by_leaf, _ = outcome(build(ours), made)
    torch.testing.assert_close(loss, theirs.detach(), rtol=1e-10, atol=1e-12)
    for mine, other in zip(by_leaf, gradients(theirs, made), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("old", ["an older policy", "on-policy"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ObjectiveConfig("grpo"), {"loss_type": "grpo"}),
        (ObjectiveConfig("grpo", kl=Kl(0.2)), {"loss_type": "grpo", "beta": 0.2}),
        (ObjectiveConfig("dr_grpo", length=9), {"loss_type": "dr_grpo"}),
        (ObjectiveConfig("dapo"), {"loss_type": "dapo", "high": 0.28}),
        (ObjectiveConfig("dapo", entropy=0.03), {"loss_type": "dapo", "high": 0.28, "entropy": 0.03}),
        (ObjectiveConfig("grpo", aggregation="tokens"), {"loss_type": "bnpo"}),
        (ObjectiveConfig("cispo", {"ratio_max": 1.3}), {"loss_type": "cispo", "high": 1.3}),
        (ObjectiveConfig("gspo"), {"loss_type": "grpo", "level": "sequence", "low": 3e-4, "high": 4e-4}),
    ],
    ids=lambda value: value.name if isinstance(value, ObjectiveConfig) else "-".join(map(str, value.values())),
)
def test_policy_losses(trl, ours, theirs, old):
    for seed in range(3):
        made = batch(LENGTHS, seed=seed, noise=1e-3 if ours.name == "gspo" else 0.5)
        if old == "on-policy":
            made = made.without("old_logprobs")
        assert_same(ours, made, grpo_loss(trl, made, **theirs))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_the_loss_under_correction_of_the_sampler(trl, mode, level):
    """With TRL's loss given the ratios, bounded as its generation does."""
    made = batch(LENGTHS, seed=4)
    log_BT = padded(made, made.signals["old_logprobs"] - made.signals["sampler_logprobs"])
    ratio = (log_BT.sum(1, keepdim=True) if level == "sequence" else log_BT).exp()
    ratio = ratio.clamp(0.5, 1.5) if mode == "truncate" else ratio.masked_fill((ratio < 0.5) | (ratio > 1.5), 0.0)
    ours = ObjectiveConfig("dapo", correction=Correction(mode, level, 0.5, 1.5))
    assert_same(ours, made, grpo_loss(trl, made, "dapo", high=0.28, ratio=ratio))


def test_rloo(trl):
    for seed in range(5):
        made = batch(LENGTHS, seed=seed, noise=0.1)
        mask_BT = padded(made, torch.ones_like(made.entropy_P)).long()
        inputs = {
            "prompt_ids": mask_BT[:, :0], "prompt_mask": mask_BT[:, :0], "completion_ids": mask_BT,
            "completion_mask": mask_BT, "advantages": advantages_of(made),
            "old_logps": padded(made, made.signals["old_logprobs"]).sum(1),
        }  # fmt: skip
        trainer = stand_in(made, epsilon_low=0.2, epsilon_high=0.2)
        assert_same(ObjectiveConfig("rloo"), made, trl.rloo._compute_loss(trainer, None, inputs))


def test_dpo(trl):
    made = batch(LENGTHS, seed=6)
    order = [0, 2, 4, 1, 3, 5]  # TRL has all chosen first

    def laid_out(values_P: torch.Tensor) -> torch.Tensor:
        """[B, 1 + T], behind one token of a prompt."""
        return torch.nn.functional.pad(padded(made, values_P)[order], (1, 0))

    mask = laid_out(torch.ones_like(made.entropy_P)).long()
    zeros = torch.zeros_like(mask[:, 1:], dtype=torch.float64)
    said = SimpleNamespace(
        log_probs=laid_out(made.logprobs_P)[:, 1:], entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
    )
    reference = laid_out(made.signals["reference_logprobs"])[:, 1:].sum(1)
    trainer = stand_in(
        made, ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl", loss_types=["sigmoid"],
        loss_weights=[1.0], beta=0.1, label_smoothing=0.0, use_weighting=False,
    )  # fmt: skip
    trainer.model = Model(said)
    inputs = {
        "input_ids": mask, "attention_mask": mask, "completion_mask": mask,
        "ref_chosen_logps": reference[:3], "ref_rejected_logps": reference[3:],
    }  # fmt: skip
    loss = trl.dpo._compute_loss(trainer, trainer.model, inputs, return_outputs=False)
    assert_same(ObjectiveConfig("dpo"), made, loss)


class Model:
    """What a forward pass gives DPO's loss."""

    training = True

    def __init__(self, said: SimpleNamespace):
        self._said = said

    def __call__(self, **_: Any) -> SimpleNamespace:
        return self._said
