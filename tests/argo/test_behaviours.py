"""What both engines must do alike, each a manifest in `behaviours/`, run on both and compared node by node."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.argo import connect
from posttrain.engine.conformance import (
    Verdict,
    as_expected,
    explanations,
    find_cases,
    judge,
    run_all,
    run_all_on_cluster,
)
from posttrain.engine.settings import EngineSettings

from .conftest import ACCOUNT, IMAGE, NAMESPACE, SECONDS, Deployment, Started, say

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2 * SECONDS)]

BEHAVIOURS = Path(__file__).parent / "behaviours"
MANIFESTS = sorted(BEHAVIOURS.glob("*.yaml"))


@pytest.fixture(scope="module")
def verdicts(
    deployment: Deployment, submitted: Started, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Verdict]:
    directory = tmp_path_factory.mktemp("cases") / "behaviours"
    directory.mkdir()
    for manifest in MANIFESTS:
        (directory / manifest.name).write_text(manifest.read_text().replace("posttrain:0.1.0", IMAGE))
    cases = find_cases(directory)
    say(f"{len(cases)} behaviours on the cluster, then here")
    remote = run_all_on_cluster(cases, connect(namespace=NAMESPACE), namespace=NAMESPACE, account=ACCOUNT, jobs=8)
    expected = {one.case.name: as_expected(one) for one in remote}
    return {one.case.file.stem: judge(one, expected[one.case.name]) for one in run_all(cases, EngineSettings())}


@pytest.mark.parametrize("name", [one.stem for one in MANIFESTS])
def test_both_engines_do_the_same(verdicts: dict[str, Verdict], name: str) -> None:
    assert verdicts[name].kind == "agrees", "\n".join(explanations([verdicts[name]]))
    assert not verdicts[name].outcome.refused
