"""Configuration: what does not fit its dataclass is one line that names the key, before anything starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import MISSING

from posttrain.contract.config import load_yaml, resolve, to_plain
from posttrain.errors import UserError


class Schedule(Enum):
    cosine = "cosine"
    constant = "constant"


@dataclass
class Optimizer:
    learning_rate: float = 1e-4
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])


@dataclass
class Lora:
    rank: int = 8


@dataclass
class Config:
    model: str = MISSING
    epochs: int = 1
    packing: bool = True
    schedule: Schedule = Schedule.cosine
    name: str | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    lora: Lora | None = None
    extra: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError("must be at least 1", field="epochs", value=self.epochs)


def refusal(layer: dict[str, Any], *overrides: str) -> str:
    with pytest.raises(UserError) as problem:
        resolve(Config, {"model": "m"}, layer, overrides=overrides, where="sft")
    assert "\n" not in str(problem.value)
    return str(problem.value)


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ({"epoch": 2}, "sft.epoch: unknown key; did you mean epochs?"),
        (
            {"optimizer": {"learning_rat": 1}},
            "sft.optimizer.learning_rat: unknown key; did you mean optimizer.learning_rate?",
        ),
        (
            {"optimizer": {"zzz": 1}},
            "sft.optimizer.zzz: unknown key; known keys: optimizer.learning_rate, optimizer.betas",
        ),
        (
            {"rank": 4},
            "sft.rank: unknown key; known keys: model, epochs, packing, schedule, name, optimizer, lora, extra",
        ),
        ({"epochs": "many"}, "sft.epochs: is not a whole number (got 'many'); see `posttrain config`"),
        ({"epochs": 1.5}, "sft.epochs: is not a whole number (got 1.5); see `posttrain config`"),
        ({"epochs": None}, "sft.epochs: must not be null; see `posttrain config`"),
        ({"packing": "perhaps"}, "sft.packing: is neither true nor false (got 'perhaps'); see `posttrain config`"),
        ({"schedule": "linear"}, "sft.schedule: is not one of cosine, constant (got 'linear'); see `posttrain config`"),
        ({"model": ["m"]}, "sft.model: is not a text (got ['m']); see `posttrain config`"),
        ({"optimizer": 3}, "sft.optimizer: is a group of keys (got 3); its keys: learning_rate, betas"),
        ({"optimizer": {"betas": ["x"]}}, "sft.optimizer.betas[0]: is not a number (got 'x'); see `posttrain config`"),
        ({"extra": {"a": "x"}}, "sft.extra.a: is not a whole number (got 'x'); see `posttrain config`"),
        ({"epochs": 0}, "epochs: must be at least 1 (got 0)"),
    ],
    ids=str,
)
def test_a_misfit_is_told_by_its_key(layer: dict[str, Any], line: str) -> None:
    assert refusal(layer) == line


def test_a_key_without_a_default_must_be_given() -> None:
    with pytest.raises(UserError, match=r"^sft\.model: has no value; give it one$"):
        resolve(Config, {}, where="sft")


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("epochs", "epochs: is no override; write KEY=VALUE, as in sft.learning_rate=1e-4"),
        ("epochs=many", "sft.epochs: is not a whole number (got 'many'); see `posttrain config`"),
        ("epoch=2", "sft.epoch: unknown key; did you mean epochs?"),
        ("optimizer=1", "sft.optimizer: is a group of keys (got 1); see `posttrain config`"),
    ],
)
def test_so_is_an_override(override: str, line: str) -> None:
    assert refusal({}, override) == line


@given(
    st.integers(1, 10**6), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none() | st.text("ab")
)
def test_layers_lie_over_defaults_and_overrides_over_layers(epochs: int, rate: float, packing: bool, name: str) -> None:
    lower = {"model": "lower", "epochs": 7, "packing": not packing}
    upper = {"epochs": epochs, "name": name, "optimizer": {"learning_rate": rate}}
    config = resolve(Config, lower, upper, overrides=[f"packing={str(packing).lower()}"])
    assert (config.model, config.epochs, config.name, config.packing) == ("lower", epochs, name, packing)
    assert (config.optimizer.learning_rate, config.optimizer.betas) == (rate, [0.9, 0.95])


def test_the_plain_form_resolves_to_the_same() -> None:
    config = resolve(Config, {"model": "m", "schedule": "constant", "lora": {"rank": 4}, "extra": {"a": 1}})
    assert resolve(Config, to_plain(config)) == config


def test_an_optional_group_may_be_null() -> None:
    assert resolve(Config, {"model": "m", "lora": {"rank": 4}}, {"lora": None}).lora is None


def test_variables_do_not_get_into_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    (tmp_path / "c.yaml").write_text("model: ${oc.env:TOKEN}\n")
    for read in (
        lambda: load_yaml(tmp_path / "c.yaml"),
        lambda: resolve(Config, {"model": "${oc.env:TOKEN}"}),
        lambda: resolve(Config, overrides=["model=${oc.env:TOKEN}"]),
    ):
        with pytest.raises(UserError) as problem:
            read()
        assert "${oc.env:TOKEN} is not read" in str(problem.value)
    assert problem.value.field == "model"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1", "cannot be read"),
        (b"- 1", "holds no mapping"),
        (b"\xff\xfe\x00", "cannot be read"),
        (None, "no such file"),
    ],
)
def test_a_file_that_is_no_mapping_is_told(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"^--config: {said}"):
        load_yaml(path)


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("# nothing\n")
    assert load_yaml(tmp_path / "c.yaml") == {}
