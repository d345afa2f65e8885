"""Artifacts on their way through a workflow, in S3 and in the engine's own store: taken over, looked into, left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from posttrain.engine import Engine, load
from posttrain.engine.manifest.yaml import read_documents

WORKFLOW = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: flow}
spec:
  entrypoint: main
  templates:
    - name: main
      dag:
        tasks:
          - {name: inner, template: inner}
          - name: read
            template: read
            depends: inner
            arguments:
              artifacts:
                - {name: tree, from: "{{tasks.inner.outputs.artifacts.tree}}"}
                - {name: global, from: "{{workflow.outputs.artifacts.kept}}"}
                - {name: absent, from: "{{tasks.inner.outputs.artifacts.absent}}", optional: true}
          - name: look
            template: look
            depends: inner
            when: "ARCHIVE == none"
            arguments:
              artifacts: [{name: leaf, from: "{{tasks.inner.outputs.artifacts.tree}}", subPath: deep/er}]
    - name: inner
      dag: {tasks: [{name: make, template: make}]}
      outputs:
        artifacts:
          - {name: tree, from: "{{tasks.make.outputs.artifacts.tree}}"}
          - {name: absent, from: "{{tasks.make.outputs.artifacts.absent}}", optional: true}
    - name: make
      script:
        image: i
        command: [sh, -e]
        source: mkdir -p /tmp/t/deep/er; echo a > /tmp/t/a; echo b > /tmp/t/deep/er/b
      outputs:
        artifacts:
          - {name: tree, path: /tmp/t}
          - {name: leaf, path: /tmp/t/a, globalName: kept}
          - {name: absent, path: /tmp/absent, optional: true}
    - name: read
      inputs:
        artifacts:
          - {name: tree, path: /in/tree}
          - {name: global, path: /in/global}
          - {name: absent, path: /in/absent, optional: true}
      script:
        image: i
        command: [sh, -e]
        source: cd /in; test ! -e absent; echo $(cat tree/a tree/deep/er/b global) > /tmp/line
      outputs: {parameters: [{name: line, valueFrom: {path: /tmp/line}}]}
    - name: look
      inputs: {artifacts: [{name: leaf, path: /in/leaf}]}
      script: {image: i, command: [sh, -e], source: "cat /in/leaf/b > /tmp/line"}
      outputs: {parameters: [{name: line, valueFrom: {path: /tmp/line}}]}
"""


def manifest(archive: str, location: dict) -> str:
    """The workflow with every output archived so, in S3 where a location is given."""
    (document,) = read_documents(WORKFLOW.replace("ARCHIVE", archive))
    make = next(one for one in document["spec"]["templates"] if one["name"] == "make")
    documents = [document]
    for artifact in make["outputs"]["artifacts"]:
        artifact["archive"] = {archive: {}}
        if location:
            artifact["s3"] = {
                **{key: location[key] for key in ("endpoint", "insecure", "bucket")},
                "key": f"{{{{workflow.name}}}}/{archive}/{artifact['name']}",
                "accessKeySecret": {"name": "keys", "key": "access"},
                "secretKeySecret": {"name": "keys", "key": "secret"},
            }
            data = {"access": location["accessKey"], "secret": location["secretKey"]}
            documents = [
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": data},
                document,
            ]
    return yaml.safe_dump_all(documents)


@pytest.mark.parametrize("archive", ["none", "tar", "zip"])
@pytest.mark.parametrize("where", ["store", "s3"])
def test_what_one_step_makes_others_take_over(
    tmp_path: Path, request: pytest.FixtureRequest, archive: str, where: str
) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(manifest(archive, request.getfixturevalue("s3") if where == "s3" else {}))
    engine = Engine(tmp_path)
    assert engine.run(engine.submit(load(file))) == "Succeeded", engine.get("flow")["status"]
    nodes = {one["name"]: one for one in engine.get("flow")["status"]["nodes"].values()}
    if where == "store":  # the key that Argo's controller gives it
        make = nodes["flow.inner.make"]
        key = make["outputs"]["artifacts"][0]["s3"]["key"]
        assert key.startswith(f"flow/flow-make-{make['id'].removeprefix('flow-')}/tree")
    assert nodes["flow.read"]["outputs"]["parameters"][0]["value"] == "a b a"
    if archive == "none":
        assert nodes["flow.look"]["outputs"]["parameters"][0]["value"] == "b"
    for written in (tmp_path / "engine" / "flow").rglob("*.json*"):
        if written.name in ("workflow.json", "events.jsonl"):
            assert "sesame" not in written.read_text()  # the key itself stays with the pod
