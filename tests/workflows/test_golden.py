"""Rendered routes against the files in tests/golden, and against Argo's own types.

POSTTRAIN_WRITE_GOLDEN=1 writes the files again; look at `git diff tests/golden` before you keep them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from posttrain.cli.checks import findings_of
from workflows.definition import define
from workflows.manifest import to_yaml

GOLDEN = Path(__file__).parents[1] / "golden"

CASES = {
    "sft-cluster": ("sft", "cluster", None, []),
    "sft-laptop-tiny": ("sft", "laptop", "tiny", []),
    "sft-cold-start": ("sft", "cluster", None, ["start=cold_start"]),
    "standard-cluster": ("standard", "cluster", None, []),
    "pure-rl-laptop-tiny": ("pure_rl", "laptop", "tiny", []),
    "cold-start-rl-cluster": ("cold_start_rl", "cluster", None, []),
    "evaluation-cluster": ("evaluation", "cluster", None, []),
}


def rendered(name: str) -> str:
    route, profile, preset, overrides = CASES[name]
    return to_yaml(define(route, profile, preset=preset, overrides=overrides).render())


@pytest.mark.parametrize("name", CASES)
def test_a_route_is_rendered_as_before(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("POSTTRAIN_WRITE_GOLDEN"):
        path.write_text(rendered(name))
    assert rendered(name) == path.read_text(), f"if that is meant: POSTTRAIN_WRITE_GOLDEN=1 pytest {__file__}"


@pytest.mark.parametrize("name", CASES)
def test_argos_types_know_every_key_and_nothing_leads_nowhere(name: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(rendered(name))
    assert findings_of(str(path), here="laptop" in name) == []


def test_the_check_is_strict(tmp_path: Path) -> None:
    manifest = yaml.safe_load(rendered("sft-cluster"))
    manifest["spec"]["templates"][-1]["container"]["comand"] = ["x"]
    path = tmp_path / "manifest.yaml"
    path.write_text(to_yaml(manifest))
    assert any("comand" in finding for finding in findings_of(str(path), here=False))
