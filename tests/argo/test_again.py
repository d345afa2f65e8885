"""A step again, a workspace read, a log found: what is submitted follows from the workflow object alone."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.argo.again import again
from posttrain.argo.logs import pod_name, pods_of, read_logs
from posttrain.argo.workspace import reading
from posttrain.errors import UserError
from workflows.definition import define


def ran(step: str = "prepare-model", template: str = "prepare-model", **node: Any) -> dict[str, Any]:
    """The route sft, whose `step` has run on a cluster."""
    workflow = define("sft", "dev", preset="tiny").render("run")
    workflow["metadata"]["labels"]["workflows.argoproj.io/completed"] = "true"
    inputs = {
        "parameters": [{"name": "step", "value": "prepare_model"}, {"name": "config", "value": '{"source": "tiny"}'}]
    }
    found = {"id": "run-17", "name": f"run.{step}", "displayName": step, "type": "Pod", "phase": "Succeeded",
             "templateName": template, "inputs": inputs, "startedAt": "2026-01-01T00:00:00Z"} | node  # fmt: skip
    workflow["status"] = {"nodes": {"run-17": found}}
    return workflow


def test_a_step_again_has_its_template_its_arguments_and_nothing_else() -> None:
    workflow = ran()
    manifest = again(workflow, "prepare_model")
    step, main = manifest["spec"]["templates"]
    assert step in workflow["spec"]["templates"]
    assert main["dag"]["tasks"][0]["arguments"] == workflow["status"]["nodes"]["run-17"]["inputs"]
    assert manifest["spec"]["arguments"] == workflow["spec"]["arguments"]
    assert manifest["spec"]["volumes"] == workflow["spec"]["volumes"]
    assert "onExit" not in manifest["spec"]
    assert manifest["metadata"]["generateName"] == "run-rerun-"
    assert "workflows.argoproj.io/completed" not in manifest["metadata"]["labels"]
    assert "posttrain/route" in manifest["metadata"]["labels"]


def test_a_step_that_was_tried_twice_is_one_step() -> None:
    workflow = ran(type="Retry")
    attempt = workflow["status"]["nodes"]["run-17"] | {
        "id": "run-18", "name": "run.prepare-model(0)", "displayName": "prepare-model(0)", "type": "Pod",
        "nodeFlag": {"retried": True},
    }  # fmt: skip
    workflow["status"]["nodes"]["run-18"] = attempt
    assert again(workflow, "prepare-model")["spec"]["templates"][1]["dag"]["tasks"][0]["name"] == "prepare-model"


@pytest.mark.parametrize(("step", "said"), [("gate", "has not run.*known: prepare-model"), ("serve", "is a service")])
def test_what_cannot_be_run_again_is_named(step: str, said: str) -> None:
    workflow = ran() if step == "gate" else ran("serve", "serve")
    with pytest.raises(UserError, match=said):
        again(workflow, step)


def test_the_pod_that_reads_the_workspace_is_like_the_runs_own() -> None:
    workflow = ran()
    spec = reading(workflow, ["runs/run"])["spec"]
    container = spec["templates"][0]["container"]
    assert container["command"][-2:] == ["/workspace", "runs/run"]
    assert container["image"] == "posttrain:0.1.0"
    assert spec["serviceAccountName"] == "posttrain-workflow"
    assert spec["volumes"] == workflow["spec"]["volumes"]
    with pytest.raises(UserError, match="no step of posttrain"):
        reading({"metadata": {"name": "x"}, "spec": {"templates": [{"name": "a", "container": {"image": "b"}}]}}, [])


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        ({"name": "run", "templateName": "main", "id": "run"}, "run"),
        ({"name": "run.a", "templateName": "sft", "id": "run-123"}, "run-sft-123"),
        ({"name": "run.a", "templateRef": {"name": "shared", "template": "sft"}, "id": "run-123"}, "run-sft-123"),
        ({"name": "run.a.inline", "id": "run-9"}, "run-9"),
        ({"name": "run.a", "templateName": "t" * 300, "id": "run-9"}, "run-" + "t" * 238 + "-9"),
    ],
)
def test_a_pods_name_follows_from_its_node(node: dict[str, Any], pod: str) -> None:
    assert pod_name({"metadata": {"name": "run"}}, node) == pod


class Logs:
    """A cluster whose only pod wrote these lines."""

    def __init__(self, *lines: str):
        self.lines = lines

    def pod_log(self, workflow: str, pod: str, *, follow: bool = False):
        assert (workflow, pod) == ("run", "run-prepare-model-17")
        return iter(self.lines)


def test_what_argos_executor_says_is_no_line_of_the_steps() -> None:
    executor = 'time=2026-11-30T00:43:30.145Z level=INFO msg="sub-process exited" argo=true error=<nil>'
    cluster = Logs("one", executor, "", "load 100%" + executor, "time=now level=high argo=true is said by a step")
    found = [line for _, line in read_logs(cluster, ran(), lambda _: True)]  # type: ignore[arg-type]
    assert found == ["one", "", "load 100%", "time=now level=high argo=true is said by a step"]


def test_only_what_has_started_has_a_log() -> None:
    assert pods_of(ran(phase="Pending")) == []
    assert pods_of(ran(type="Skipped")) == []
    assert list(read_logs(Logs("x"), ran(), lambda display: display == "other")) == []  # type: ignore[arg-type]
