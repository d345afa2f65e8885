"""Against a real Argo Workflows. Needs KUBECONFIG and ARGO_SERVER to point to one that has the image IMAGE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.argo import FINAL, connect, wait
from posttrain.errors import UserError
from workflows.definition import ROUTES, define

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("POSTTRAIN_TEST_IMAGE", "conformance:1")


def workflow(command: str) -> dict:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "posttrain-test-"},
        "spec": {
            "entrypoint": "main",
            "templates": [
                {"name": "main", "dag": {"tasks": [{"name": "only", "template": "leaf"}]}},
                {"name": "leaf", "container": {"image": IMAGE, "command": ["sh", "-c", command]}},
            ],
        },
    }


@pytest.mark.parametrize("route", ROUTES)
def test_the_server_accepts_every_rendered_route(route: str) -> None:
    connect().lint(define(route, "cluster").render("accepted"))


def test_the_servers_objection_is_one_line() -> None:
    wrong = workflow("true")
    wrong["spec"]["entrypoint"] = "nowhere"
    with pytest.raises(UserError, match="nowhere"):
        connect().lint(wrong)


def test_a_wait_ends_with_the_final_phase_and_not_before() -> None:
    cluster = connect()
    name = cluster.create(workflow("sleep 3"))["metadata"]["name"]
    phases = [found.get("status", {}).get("phase") for found in wait(cluster, name, every=0.2)]
    assert phases[-1] == "Succeeded"
    assert not set(phases[:-1]) & set(FINAL)


def test_a_workflow_that_is_not_there_ends_the_wait_at_once() -> None:
    with pytest.raises(UserError, match="not found"):
        list(wait(connect(), "posttrain-no-such-workflow"))


@pytest.mark.parametrize("way", ["server", "kubectl"])
@pytest.mark.parametrize(("command", "code"), [("echo done", 0), ("exit 3", 1)])
def test_submit_and_follow(way: str, command: str, code: int, tmp_path: Path) -> None:
    from workflows.manifest import to_yaml

    path = tmp_path / "manifest.yaml"
    path.write_text(to_yaml(workflow(command)))
    environment = dict(os.environ)
    if way == "kubectl":
        environment.pop("ARGO_SERVER")
    done = subprocess.run(
        [sys.executable, "-m", "posttrain.cli", "submit", str(path), "--watch"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("submitted Workflow posttrain-test-")
    assert ("only: succeeded" in done.stdout) == (code == 0)
