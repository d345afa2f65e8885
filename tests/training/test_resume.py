"""Killed anywhere and started again, training has the same losses and ends in the same bytes as if it had not been."""

from __future__ import annotations

import random
import time

import pytest

LONG = {"epochs": 4, "eval_every": 5, "checkpoint": {"every": 3}, "warmup": 0.2}
WITH_CHANCE = LONG | {"lora": {"rank": 4, "dropout": 0.2}}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(LONG, id="all weights"),
        pytest.param(WITH_CHANCE, id="adapters with dropout", marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_updates_it_ends_as_if_nothing_had_been(workspace, tmp_path, config):
    here = workspace.fork(tmp_path / "w")
    assert here.run("steady", config)[0] == 0
    total = here.outputs("steady")["updates"]
    assert total == 32

    chance, kills = random.Random(), 0
    for at in sorted(chance.sample(range(1, total), 4)):
        step = here.start("killed", config)
        while here.updates("killed") < at and step.process.is_alive():
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        kills += step.kill()
    code, said = here.run("killed", config)

    assert code == 0, said
    assert kills >= 2, "too few of them hit a training that was under way"
    assert here.curve("killed") == here.curve("steady")
    theirs, ours = here.outputs("steady"), here.outputs("killed")
    assert theirs.pop("tokens_per_second") and ours.pop("tokens_per_second") is not None
    digests = [[str(value).rpartition("#")[2] for value in outputs.values()] for outputs in (theirs, ours)]
    assert digests[0] == digests[1]


def test_resuming_takes_the_newest_whole_checkpoint_and_names_the_damaged_one(workspace, tmp_path):
    here = workspace.fork(tmp_path / "w")
    config = {"epochs": 2, "checkpoint": {"every": 4, "keep_last": 9}}
    assert here.run("r", config)[0] == 0
    expected, curve = here.outputs("r"), here.curve("r")
    kept = here.path / "checkpoints" / "r" / "sft"
    damaged = kept / "step-000016" / "__0_0.distcp"
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 3] ^= 1
    damaged.write_bytes(raw)
    (here.path / "runs" / "r" / "sft" / "record.json").unlink()

    code, said = here.run("r", config)
    assert code == 0, said
    assert f"checkpoint passed over: {kept}/step-000016: is damaged: __0_0.distcp does not have its digest" in said
    assert "resuming from" in said and "step-000012" in said
    assert here.curve("r") == curve
    measured = {"tokens_per_second": 0}
    assert here.outputs("r") | measured == expected | measured


def test_the_seed_and_nothing_else_makes_a_difference(workspace, tmp_path):
    here = workspace.fork(tmp_path / "w")
    for run, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert here.run(run, {}, seed=seed)[0] == 0
    models = [here.outputs(run)["model"].partition("#")[2] for run in "abc"]
    assert models[0] == models[1] != models[2]


def test_early_stop_keeps_the_weights_with_the_lowest_validation_loss(workspace, tmp_path):
    here = workspace.fork(tmp_path / "w")
    config = {
        "epochs": 20, "learning_rate": 3e-2, "schedule": "constant", "eval_every": 2,
        "early_stop": {"patience": 3}, "checkpoint": {"keep_last": 1},
    }  # fmt: skip
    code, said = here.run("r", config)
    assert code == 0, said
    outputs = here.outputs("r")
    validation = {update: value for update, name, value in here.curve("r") if name == "validation_loss"}
    best = min(validation, key=lambda update: validation[update])
    assert outputs["updates"] == best + 6 < 160, "three evaluations without a better one ended it"
    assert outputs["validation_loss"] == validation[best]
    assert outputs["checkpoint"].startswith(f"checkpoints/r/sft/step-{best:06d}#")

    rate = {name: config[name] for name in ("epochs", "learning_rate", "schedule")}
    straight = rate | {"max_updates": best, "warmup": 0.05 * 160 / best}
    assert here.run("straight", straight)[0] == 0
    assert here.outputs("straight")["model"].partition("#")[2] == outputs["model"].partition("#")[2]
