"""The main job on both engines: the same definition gives the same outputs, and every command works on both."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from posttrain.argo import connect, wait
from posttrain.argo.status import steps_of
from posttrain.contract.record import Record, read
from posttrain.contract.ref import Ref
from posttrain.rerun import compare, surroundings

from .conftest import NAMESPACE, SECONDS, Deployment, Result, Started, kubectl, on_cluster, posttrain, say

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2 * SECONDS)]

STEPS = {
    "validate",
    "prepare_model",
    "prepare_data",
    "baseline",
    "sft",
    "evaluate",
    "gate",
    "export",
    "verify",
    "report",
}


def records(workspace: Path, run: str) -> dict[str, Record]:
    found = {path.parent.name: read(path.parent) for path in (workspace / "runs" / run).glob("*/record.json")}
    return {name: record for name, record in found.items() if record}


@pytest.fixture(scope="module")
def remote(deployment: Deployment, submitted: Started) -> Path:
    """The workspace of the cluster, once the route has ended on it."""
    say("waiting for the route on the cluster")
    done = submitted.result()
    assert done.returncode == 0, done.stdout + done.stderr
    return deployment.workspace


@pytest.fixture(scope="module")
def scheduled(deployment: Deployment, remote: Path) -> str:
    """The name of a CronWorkflow whose first run starts with the next minute."""
    say("posttrain submit evaluation, every minute")
    done = submit_evaluation(deployment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("submitted CronWorkflow evaluation to ")
    return "evaluation"


def submit_evaluation(deployment: Deployment) -> Result:
    return posttrain("submit", "evaluation", "--preset", "tiny", 'schedule="* * * * *"', "-n", NAMESPACE,
                     "--profile", deployment.profile)  # fmt: skip


@pytest.fixture(scope="module")
def local(remote: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same definition on the embedded engine."""
    say("the same here: posttrain run sft --preset tiny")
    workspace = tmp_path_factory.mktemp("local") / "workspace"
    done = posttrain("run", "sft", "--preset", "tiny", "--name", "tiny", "-w", workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def test_the_route_runs_on_the_cluster(remote: Path) -> None:
    assert set(records(remote, "tiny")) == STEPS
    shown = on_cluster("get", "tiny")
    assert shown.stdout.startswith("tiny: Succeeded, 12 of 12 steps"), shown.stdout + shown.stderr
    assert re.search(r"✓ +tiny +succeeded +12/12", on_cluster("list").stdout)
    assert on_cluster("watch", "tiny").returncode == 0
    assert on_cluster("resume", "tiny").returncode == 0


def test_logs_are_the_steps_own(remote: Path) -> None:
    said = on_cluster("logs", "tiny", "gate").stdout
    assert "steps.gate" in said
    assert "argo=true" not in said
    every = on_cluster("logs", "tiny", "--follow").stdout
    assert all(f"{step}(0): " in every for step in ("prepare-data", "sft", "gate", "serve"))
    assert "no such step" in on_cluster("logs", "tiny", "nowhere").stderr


def test_an_environment_that_is_there_is_not_installed_again(remote: Path) -> None:
    for environment in ("control", "cpu"):
        assert "is installed: " in on_cluster("logs", "tiny", f"install-{environment}").stdout


def test_a_step_run_again_on_the_cluster_makes_the_same(remote: Path) -> None:
    say("posttrain rerun tiny gate --check --on cluster")
    done = on_cluster("rerun", "tiny", "gate", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("every output is the same")
    assert "is a service" in on_cluster("rerun", "tiny", "serve").stderr


def test_the_report_comes_from_the_cluster(remote: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = on_cluster("report", "tiny", "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert all(step.replace("_", "-") in text for step in STEPS - {"report"})
    assert text.count('<polyline class="curve') >= 1
    assert text.count('class="answer ') >= 2


def test_a_schedule_is_submitted_and_submitted_anew(scheduled: str, deployment: Deployment) -> None:
    again = submit_evaluation(deployment)
    assert again.stdout.startswith("submitted anew CronWorkflow evaluation to "), again.stderr


def test_both_engines_give_the_same_outputs(remote: Path, local: Path) -> None:
    theirs, ours = records(remote, "tiny"), records(local, "tiny")
    assert set(theirs) == set(ours) == STEPS
    for step, record in theirs.items():
        stale = [c.name for c in surroundings(record, ours[step]) if c.name == "source" and c.verdict != "same"]
        assert not stale, "the cluster's image is not of this source: images/build makes it anew"
        different = [c for c in compare(record, ours[step]) if c.verdict == "differs"]
        assert not different, f"{step}: {different}"


def test_the_scheduled_evaluation_gives_what_the_route_gave(scheduled: str, remote: Path, local: Path) -> None:
    """Its model and data are those of the route, and so its results are the baseline's."""
    say("waiting for the scheduled evaluation")
    cluster = connect(namespace=NAMESPACE)
    until = time.monotonic() + 90 + SECONDS
    while not (runs := [w for w in cluster.list_all() if w["metadata"]["name"].startswith(f"{scheduled}-")]):
        assert time.monotonic() < until, "the schedule started nothing"
        time.sleep(1)
    kubectl("-n", NAMESPACE, "patch", "cronworkflow", scheduled, "--type", "merge", "-p", '{"spec": {"suspend": true}}')
    name = runs[0]["metadata"]["name"]
    *_, last = wait(cluster, name)
    assert last["status"]["phase"] == "Succeeded", json.dumps([vars(s) for s in steps_of(last)], indent=1)
    evaluated, baseline = records(remote, name)["evaluate"].outputs, records(local, "tiny")["baseline"].outputs
    assert evaluated["accuracy"] == baseline["accuracy"]
    assert Ref.parse(evaluated["results"]).digest == Ref.parse(baseline["results"]).digest
