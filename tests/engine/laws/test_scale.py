"""Large graphs: the work goes up with the number of nodes, not with its square."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.engine.laws.support import WORK, as_told, run_decided, workflow


def fan(size: int) -> dict:
    return {
        "name": "main",
        "dag": {"tasks": [{"name": "each", "template": "work", "withSequence": {"count": str(size)}}]},
    }


def chain(size: int) -> dict:
    tasks = [{"name": f"t{n}", "template": "work"} | ({"depends": f"t{n - 1}"} if n else {}) for n in range(size)]
    return {"name": "main", "dag": {"tasks": tasks}}


def group(size: int) -> dict:
    each = {"name": "each", "template": "work", "withSequence": {"count": str(size)}}
    return {"name": "main", "steps": [[each], [{"name": "end", "template": "work"}]]}


def groups(size: int) -> dict:
    return {"name": "main", "steps": [[{"name": f"t{n}", "template": "work"}] for n in range(size)]}


def measured(tmp_path: Path, main: dict) -> float:
    began = time.process_time()
    nodes, _ = run_decided(tmp_path, workflow(main, WORK), as_told)
    assert nodes[""]["phase"] == "Succeeded"
    return time.process_time() - began


def calls(tmp_path: Path, main: dict) -> int:
    """How many functions are called: what a machine's load does not change."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        run_decided(tmp_path, workflow(main, WORK), as_told)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", [fan, chain, group, groups])
def test_eight_times_the_nodes_are_not_much_more_than_eight_times_the_work(tmp_path: Path, shape) -> None:
    calls(tmp_path / "warm", shape(10))
    assert calls(tmp_path / "many", shape(800)) < 12 * calls(tmp_path / "few", shape(100))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", [fan, chain, group, groups])
def test_ten_thousand_nodes(tmp_path: Path, shape) -> None:
    assert measured(tmp_path, shape(10_000)) < 60
