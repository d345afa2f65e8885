"""`posttrain config`: what it prints can be edited and given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.cli.explain import explain
from workflows.definition import ROUTES, define


@pytest.mark.parametrize("route", ROUTES)
def test_what_is_printed_resolves_to_the_same(route: str, tmp_path: Path) -> None:
    before = define(route, "laptop", overrides=["seed=11", "evaluate.sampling.max_tokens=7"]).config
    path = tmp_path / "config.yaml"
    path.write_text(explain(before))
    assert define(route, "laptop", files=[path]).config == before


def test_what_was_changed_says_its_default_and_a_key_its_purpose() -> None:
    lines = explain(define("sft", "laptop", overrides=["seed=11"]).config).splitlines()
    assert any(line.startswith("seed: 11 ") and line.endswith("# default: 0") for line in lines)
    (shown,) = [line for line in lines if line.startswith("  shown:")]
    assert shown.endswith("# samples kept in the summary for the report")
