"""The step `validate` and the check of a route: all faults are found, nothing heavy is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.contract import Nothing, StepContext
from posttrain.errors import UserError
from posttrain.validation import check_route
from steps import prepare_data, prepare_model
from steps.validate import Config
from steps.validate.run import run

ROOT = Path(__file__).resolve().parents[2]


def test_a_sound_route_has_nothing_wrong(tmp_path):
    assert check_route([(prepare_model.SPEC, {}), (prepare_data.SPEC, prepare_data.Config())], tmp_path) == []


def test_every_step_is_looked_at_and_each_fault_named(tmp_path):
    faults = check_route(
        [
            (prepare_model.SPEC, {"source": "path:gone"}),
            (prepare_data.SPEC, {"sources": [{"kind": "files", "path": "gone.jsonl"}]}),
            (prepare_data.SPEC, {"splt": {}}),
            (prepare_model.SPEC, {}),
        ],
        tmp_path,
    )
    assert [fault.field for fault in faults] == [
        "prepare_model.source", "prepare_data.sources[0].path", "prepare_data.splt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, r"validate.config: names no step"),
        ({"prepare_dat": {}}, r"validate.config.prepare_dat: no such step; did you mean prepare_data\?"),
        ({"prepare_model": {"source": "path:gone"}}, r"prepare_model.source: no such model directory"),
    ],
)
def test_the_step_fails_with_the_fault(tmp_path, config, says):
    with pytest.raises(UserError, match=says):
        run(StepContext(tmp_path, "r", "validate", 0), Nothing(), Config("sft", config))


def test_it_runs_where_nothing_heavy_is_installed(tmp_path):
    """The environment `control` has no torch, Lance or Transformers: importing one would fail there."""
    blocked = "import sys; [sys.modules.__setitem__(name, None) for name in ('torch', 'lance', 'transformers', 'vllm', "
    blocked += "'pyarrow', 'numpy', 'datasets', 'reasoning_gym')]; from posttrain.contract.runner import main; "
    config = json.dumps({"route": "sft", "config": {"prepare_model": {}, "prepare_data": {}}})
    done = subprocess.run(
        [sys.executable, "-c", blocked + "from steps.validate import SPEC; main(SPEC, sys.argv[1:])",
         "--workspace", tmp_path, "--run", "r", "--config", config, "--outputs", tmp_path / "out"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/summary").read_text() == "route sft: 2 steps, configuration and references are sound"
