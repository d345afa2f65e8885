"""A run is shown as Argo's controller would have it, for tools that read Argo's JSON."""

from __future__ import annotations

import os
from pathlib import Path

from posttrain.engine import Engine, load
from posttrain.engine.manifest.yaml import write_documents
from tests.engine.laws.support import WORK, as_told, run_decided, workflow

SHARED = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTemplate", "metadata": {"name": "shared"}}


def test_progress_and_conditions_are_those_that_argo_gives(tmp_path: Path) -> None:
    tasks = [{"name": "a", "template": "work"}, {"name": "b", "template": "nap", "depends": "a"}]
    tasks += [{"name": "c", "template": "work", "depends": "a.Failed"}]
    nap = {"name": "nap", "suspend": {"duration": "0"}}
    nodes, _ = run_decided(tmp_path, workflow({"name": "main", "dag": {"tasks": tasks}}, WORK, nap), as_told)
    assert {name: nodes[f"w.{name}"].get("progress") for name in "abc"} == {"a": "1/1", "b": "1/1", "c": None}
    assert nodes[""]["progress"] == "2/2"
    conditions = [(one["type"], one["status"]) for one in nodes[""]["conditions"]]
    assert conditions == [("PodRunning", "False"), ("Completed", "True")]


def test_templates_from_elsewhere_go_with_the_run(tmp_path: Path) -> None:
    """They may have been changed by the time that somebody looks."""
    nap = {"name": "nap", "suspend": {"duration": "0"}}
    inner = {"name": "inner", "steps": [[{"name": "a", "template": "nap"}]]}
    shared = SHARED | {"spec": {"entrypoint": "inner", "templates": [inner, nap, {**nap, "name": "unused"}]}}
    called = workflow(
        {"name": "main", "steps": [[{"name": "x", "templateRef": {"name": "shared", "template": "inner"}}]]}
    )
    whole = called | {"metadata": {"name": "whole"}, "spec": {"workflowTemplateRef": {"name": "shared"}}}
    for manifest in (called, whole):
        (tmp_path / "manifest.yaml").write_text(write_documents([shared, manifest]))
        engine = Engine(tmp_path)
        assert engine.run(engine.submit(load(tmp_path / "manifest.yaml"))) == "Succeeded"
    assert engine.get("w")["status"]["storedTemplates"] == {
        "namespaced/shared/inner": inner,
        "namespaced/shared/nap": nap,
    }
    stored = engine.get("whole")["status"]["storedWorkflowTemplateSpec"]
    assert stored == shared["spec"] | {"workflowTemplateRef": {"name": "shared"}, "arguments": {}}


def test_a_pod_says_where_it_ran_and_the_run_how_pods_are_named(tmp_path: Path) -> None:
    nodes, _ = run_decided(tmp_path, workflow(WORK | {"name": "main"}), as_told)
    assert nodes["w"]["hostNodeName"] == os.uname().nodename
    annotations = Engine(tmp_path).get("w")["metadata"]["annotations"]
    assert annotations["workflows.argoproj.io/pod-name-format"] == "v2"
