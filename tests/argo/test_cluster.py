"""Submitting to a real Argo Workflows, and waiting for what was submitted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from posttrain.argo import FINAL, connect, wait
from posttrain.errors import UserError
from workflows.definition import ROUTES, define
from workflows.manifest import to_yaml

from .conftest import NAMESPACE, POSTTRAIN, on_cluster, posttrain, workflow

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deployment")]


@pytest.mark.parametrize("route", ROUTES)
def test_the_server_accepts_every_rendered_route(route: str) -> None:
    connect(namespace=NAMESPACE).lint(define(route, "cluster").render("accepted"))


def test_the_servers_objection_is_one_line() -> None:
    wrong = workflow("true")
    wrong["spec"]["entrypoint"] = "nowhere"
    with pytest.raises(UserError, match="nowhere"):
        connect(namespace=NAMESPACE).lint(wrong)


def test_a_wait_ends_with_the_final_phase_and_not_before() -> None:
    cluster = connect(namespace=NAMESPACE)
    name = cluster.create(workflow("sleep", "3"))["metadata"]["name"]
    phases = [found.get("status", {}).get("phase") for found in wait(cluster, name, every=0.2)]
    assert phases[-1] == "Succeeded"
    assert not set(phases[:-1]) & set(FINAL)


def test_a_workflow_that_is_not_there_ends_the_wait_at_once() -> None:
    with pytest.raises(UserError, match="not found"):
        list(wait(connect(namespace=NAMESPACE), "posttrain-no-such-workflow"))


@pytest.mark.parametrize("way", ["server", "kubectl"])
@pytest.mark.parametrize(("command", "code"), [("echo done", 0), ("exit 3", 1)])
def test_submit_and_follow(way: str, command: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(to_yaml(workflow("sh", "-c", command)))
    environment = dict(os.environ)
    if way == "kubectl":
        environment.pop("ARGO_SERVER")
    done = subprocess.run(
        [POSTTRAIN, "submit", path, "--watch", "-n", NAMESPACE],
        env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("submitted Workflow test-")
    assert ("only: succeeded" in done.stdout) == (code == 0)


@pytest.mark.parametrize("way", ["server", "kubectl"])
def test_a_run_that_waits_for_an_approval_goes_on_when_it_is_resumed(way: str) -> None:
    environment = dict(os.environ)
    if way == "kubectl":
        environment.pop("ARGO_SERVER")
    waiting = workflow("true")
    waiting["spec"]["templates"][0]["dag"]["tasks"] = [
        {"name": "approve", "template": "approve"}, {"name": "only", "template": "leaf", "depends": "approve"},
    ]  # fmt: skip
    waiting["spec"]["templates"].append({"name": "approve", "suspend": {}})
    cluster = connect(namespace=NAMESPACE)
    name = cluster.create(waiting)["metadata"]["name"]
    for found in wait(cluster, name, every=0.2):
        if found.get("status", {}).get("nodes", {}).get(name, {}).get("phase") == "Running":
            break
    done = subprocess.run(
        [POSTTRAIN, "resume", name, "--on", "cluster", "-n", NAMESPACE],
        env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "approve: succeeded" in done.stdout
    assert "only: succeeded" in done.stdout


def test_what_failed_is_retried_and_a_stop_leaves_nothing_running() -> None:
    cluster = connect(namespace=NAMESPACE)
    failing = cluster.create(workflow("sh", "-c", "exit 3"))["metadata"]["name"]
    long = cluster.create(workflow("sleep", "120"))["metadata"]["name"]
    *_, last = wait(cluster, failing, every=0.5)
    assert last["status"]["phase"] == "Failed"
    cluster.stop(long)
    cluster.retry(failing, {})
    *_, again = wait(cluster, failing, every=0.5)
    *_, stopped = wait(cluster, long, every=0.5)
    assert (again["status"]["phase"], stopped["status"]["phase"]) == ("Failed", "Failed")
    assert again["status"]["startedAt"] >= last["status"]["finishedAt"]


def test_a_retry_starts_the_service_again_that_what_failed_had_asked() -> None:
    cluster = connect(namespace=NAMESPACE)
    told = workflow("sleep", "60")
    main, leaf = told["spec"]["templates"]
    main["dag"]["tasks"] = [
        {"name": "serve", "template": "leaf"},
        {"name": "ask", "template": "ask", "depends": "serve"},
    ]
    leaf |= {"daemon": True, "retryStrategy": {"limit": "1"}}
    told["spec"]["templates"].append(
        {"name": "ask", "container": leaf["container"] | {"command": ["sh", "-c", "exit 3"]}}
    )
    name = cluster.create(told)["metadata"]["name"]
    *_, first = wait(cluster, name, every=0.5)
    done = on_cluster("retry", name)
    assert "serve ended with the run: it starts again, too" in done.stderr
    assert done.returncode == 1, "it fails again, but not for want of its service"
    again = cluster.get(name)["status"]["nodes"]
    for node in first["status"]["nodes"].values():
        assert again[node["id"]]["startedAt"] > node["startedAt"], node["displayName"]


def test_a_manifest_is_submitted_with_a_name_and_values_and_a_step_that_succeeded_runs_again(tmp_path: Path) -> None:
    told = workflow("echo", "{{workflow.parameters.who}}", arguments={"parameters": [{"name": "who"}]})
    (tmp_path / "manifest.yaml").write_text(to_yaml(told))
    done = posttrain("submit", tmp_path / "manifest.yaml", "who=you", "--name", "told", "--watch", "-n", NAMESPACE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("submitted Workflow told to ")
    assert on_cluster("logs", "told", "only").stdout == "you\n"
    first = connect(namespace=NAMESPACE).get("told")["status"]["startedAt"]
    again = on_cluster("retry", "told", "--restart-successful", "--node-field-selector", "displayName=only")
    assert again.returncode == 0, again.stderr
    nodes = connect(namespace=NAMESPACE).get("told")["status"]["nodes"].values()
    assert next(one for one in nodes if one["displayName"] == "only")["startedAt"] > first
