"""docs/objectives.md tells what is there: its tables, its example."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from posttrain.training.objectives.build import build
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.objectives.kinds import KINDS, OWN
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.select import Reason
from tests.training.objectives.support import batch, outcome

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "objectives.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]


def named(cell: str) -> list[str]:
    return re.findall(r"`([\w.:]+)`", cell)


def number(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def test_the_example_is_an_objective(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_objectives.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    (name,) = re.findall(r"name: (my_objectives:\w+)", PAGE)
    made = batch((3, 2))
    loss, by_leaf, metrics = outcome(build(ObjectiveConfig(name, {"width": 0.3})), made)
    push_P = 0.3 * torch.tanh((made.logprobs_P - made.signals["old_logprobs"]).detach() / 0.3)
    torch.testing.assert_close(loss, -(push_P * made.signals["advantages"]).mean())
    assert by_leaf[0].all() and float(metrics["push"].total) == pytest.approx(float(push_P.sum()))


def test_every_objective_has_a_row_that_says_when_and_whence():
    listed = [named(row[0])[0] for row in ROWS if len(row) == 3 and named(row[0])]
    assert listed[1 : len(KINDS) + 2] == [
        *[name for name in KINDS if name != "cross_entropy"],
        "cross_entropy",
        "module:function",
    ]


def test_every_option_is_there_with_its_default():
    start = next(i for i, row in enumerate(ROWS) if row[:2] == ["objective", "option"])
    told: dict[str, dict[str, float]] = {}
    owners: list[str] = []
    options: list[str] = []
    for row in ROWS[start + 2 :]:
        if row[0] == "key":
            break
        owners = named(row[0]) or owners
        options = options if row[1] == "the same" else named(row[1])
        for owner in owners:
            told.setdefault(owner, {}).update(zip(options, number(row[2]), strict=True))
    real = {name: {f.name: f.default for f in fields(kind.options)} for name, kind in KINDS.items()}
    assert told == {name: options for name, options in real.items() if options}


def test_what_auto_is():
    start = next(i for i, row in enumerate(ROWS) if row == ["", "baseline", "scale", "aggregation"])
    told = {
        name: tuple(row[1:])
        for row in ROWS[start + 2 : start + 9]
        for name in [*named(row[0]), *(["own"] * ("own" in row[0]))]
    }
    real = {name: kind for name, kind in KINDS.items() if kind.samples} | {"own": OWN}
    assert {n: (b, s, a.split(":")[0]) for n, (b, s, a) in told.items()} == {
        name: (kind.baseline, kind.scale, kind.aggregation) for name, kind in real.items()
    }


def test_every_setting_of_the_selection_and_every_reason_is_there():
    words = set(named(PAGE))
    assert {f.name for f in fields(SampleSelection)} | {reason.value for reason in Reason} <= words
