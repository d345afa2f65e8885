"""The engine held against what the real controller did, case by case."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from posttrain.engine.conformance import (
    CARRIED,
    Verdict,
    busybox_image,
    explanations,
    find_cases,
    judge,
    run_all,
    table,
)
from posttrain.engine.settings import EngineSettings
from posttrain.errors import UserError

HERE = Path(__file__).parent
CASES = find_cases(HERE / "cases", HERE / "results")
REASONS: dict[str, str] = tomllib.loads((HERE / "differences.toml").read_text(encoding="utf-8")).get("differs", {})
JOBS = 32  # they wait more than they work

pytestmark = pytest.mark.xdist_group("conformance")


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """Every case run once, side by side."""
    scratch = tmp_path_factory.mktemp("conformance")
    try:
        images = busybox_image(scratch / "image")
    except UserError as lacking:
        pytest.skip(str(lacking))
    settings = EngineSettings(images=images)
    outcomes = run_all(CASES, settings, jobs=JOBS, scratch=scratch)
    found = {one.outcome.case.name: one for one in map(judge, outcomes)}
    Console().print(table(found.values()), *explanations(found.values(), REASONS), sep="\n", markup=False)
    return found


@pytest.mark.timeout(290)
@pytest.mark.parametrize("name", [one.name for one in CASES])
def test_agrees_is_refused_or_has_a_reason(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    if name in REASONS:
        assert verdict.kind != "agrees", "this case agrees by now: take it out of differences.toml"
        return
    assert verdict.kind != "differs", "\n".join(verdict.lines)
    topic = verdict.outcome.case.topic
    assert verdict.kind == "agrees" or topic not in CARRIED, f"{topic} is carried, but: {verdict.lines}"


@pytest.mark.timeout(290)
def test_carried_topics_agree_in_97_of_100_cases(verdicts: dict[str, Verdict]) -> None:
    carried = [one.kind for one in verdicts.values() if one.outcome.case.topic in CARRIED]
    assert carried.count("agrees") >= 0.97 * len(carried)


def test_every_difference_names_a_case() -> None:
    assert REASONS.keys() <= {one.name for one in CASES}
