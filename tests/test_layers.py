"""Imports go down only, and a workflow is rendered without anything heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import closure, imports, modules, third_party

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {
    "torch", "vllm", "lance", "transformers", "mlflow", "numpy", "pyarrow", "pandas", "scipy", "peft", "datasets",
    "reasoning_gym", "duckdb", "fastapi",
}  # fmt: skip
BELOW = {"posttrain": {"posttrain"}, "steps": {"posttrain", "steps"}, "workflows": {"posttrain", "steps", "workflows"}}
# The command line and `rerun` stand above the three layers: they are what starts workflows and steps.
ABOVE = ("posttrain.cli", "posttrain.rerun")
SPECS = sorted(m for m in modules() if m.startswith("steps.") and m.count(".") == 1)
DEFINITIONS = sorted(m for m in modules() if m.startswith("workflows"))


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_go_down_only(module: str) -> None:
    layer = module.partition(".")[0]
    used = {name.partition(".")[0] for name in imports(module)} & set(BELOW)
    assert module.startswith(ABOVE) or used <= BELOW[layer], f"{module} imports {used - BELOW[layer]}"


def test_nothing_below_imports_the_command_line() -> None:
    for module in modules():
        if not module.startswith(ABOVE):
            assert not any(name.startswith(ABOVE) for name in imports(module)), module


@pytest.mark.parametrize("module", SPECS)
def test_a_spec_is_light(module: str) -> None:
    """What importing it runs takes no more packages than the contract itself."""
    reached = closure([module], at_top=True)
    assert {package for _, package in third_party(reached, at_top=True)} <= {"omegaconf", "yaml", "tqdm"}


def test_workflows_import_nothing_heavy() -> None:
    """Nor does anything that they reach, even inside of a function."""
    reached = closure(DEFINITIONS, at_top=True)
    assert not {(m, package) for m, package in third_party(reached, at_top=True) if package in HEAVY}
    assert not {(m, package) for m, package in third_party(DEFINITIONS) if package in HEAVY}


@pytest.mark.parametrize("start", [DEFINITIONS, SPECS, ["posttrain.cli"], ["posttrain.doctor"]], ids=lambda s: s[0])
def test_a_fresh_interpreter_agrees(start: list[str]) -> None:
    code = f"import {', '.join(start)}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(json.loads(done.stdout))
