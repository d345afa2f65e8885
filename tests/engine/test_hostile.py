"""Manifests that are very large, or hold something hostile in a field that a user fills: each runs, or is one line."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import pytest
import yaml

from posttrain.engine.manifest import parse
from posttrain.errors import UserError
from tests.engine.laws.support import workflow
from tests.engine.mutations import HOSTILE, places
from tests.engine.whole import run_whole

EVERYTHING = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {workflows.argoproj.io/configmap-type: Parameter}}
data: {key: value, limit: "2"}
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: everything, labels: {team: a}, annotations: {note: b}}
spec:
  entrypoint: main
  onExit: bye
  serviceAccountName: runner
  arguments:
    parameters:
    - {name: x, value: text, enum: [text, other]}
    - {name: from, valueFrom: {configMapKeyRef: {name: settings, key: key}, default: d}}
    artifacts: [{name: raw, raw: {data: some}}]
  hooks: {late: {template: bye, expression: "workflow.status == 'Failed'"}}
  podMetadata: {labels: {l: v}, annotations: {a: v}}
  workflowMetadata: {labels: {w: v}, labelsFrom: {e: {expression: "workflow.name"}}}
  volumes: [{name: conf, configMap: {name: settings, items: [{key: key, path: file}]}}]
  synchronization: {mutexes: [{name: whole}]}
  templates:
  - name: main
    inputs: {parameters: [{name: x}, {name: own, default: "{{workflow.parameters.from}}"}]}
    dag:
      target: last
      tasks:
      - {name: first, template: work, arguments: {parameters: [{name: m, value: "{{inputs.parameters.x}}"}]}}
      - name: each
        template: work
        depends: first.Succeeded
        when: "{{inputs.parameters.x}} == text"
        withItems: [one, {k: v}]
        arguments: {parameters: [{name: m, value: "{{item}}"}]}
        hooks: {exit: {template: bye, arguments: {parameters: [{name: m, value: "{{tasks.each.status}}"}]}}}
      - name: count
        template: ask
        withSequence: {start: "1", end: "2", format: "n%02d"}
      - name: given
        template: work
        depends: first
        withParam: '["a", 1]'
        arguments:
          parameters: [{name: m, value: "{{=sprig.upper(inputs.parameters.x) + tasks.first.outputs.parameters.out}}"}]
      - name: last
        template: groups
        depends: given && each && count
        arguments: {artifacts: [{name: raw, raw: {data: r}}]}
    outputs: {parameters: [{name: all, valueFrom: {expression: "tasks.first.outputs.result"}, globalName: result}]}
  - name: groups
    inputs: {artifacts: [{name: raw}]}
    steps:
    - - name: take
        template: take
        arguments: {artifacts: [{name: file, from: "{{inputs.artifacts.raw}}"}]}
        continueOn: {failed: true}
  - name: work
    inputs: {parameters: [{name: m}]}
    metadata: {labels: {t: "{{inputs.parameters.m}}"}}
    retryStrategy: {limit: "1", expression: "lastRetry.exitCode != '2'", backoff: {duration: "1", factor: "2", cap: 1m}}
    timeout: 1h
    script:
      image: image:1
      command: [sh, -e]
      args: ["{{inputs.parameters.m}}"]
      workingDir: /tmp
      env:
      - {name: A, value: "{{inputs.parameters.m}}"}
      - {name: B, valueFrom: {configMapKeyRef: {name: settings, key: key}}}
      resources: {requests: {cpu: 10m, memory: 1Mi}}
      readinessProbe: {exec: {command: ["true"]}}
      volumeMounts: [{name: conf, mountPath: /conf, subPath: file}]
      source: echo '{{inputs.parameters.m}}'
    outputs: {parameters: [{name: out, valueFrom: {path: /tmp/out, default: d}}]}
  - name: take
    inputs: {artifacts: [{name: file, path: /in/file}]}
    synchronization: {semaphores: [{configMapKeyRef: {name: settings, key: limit}}]}
    container: {image: "image:1", command: ["true"]}
    sidecars: [{name: beside, image: "image:1", command: [sleep, "1"]}]
    initContainers: [{name: before, image: "image:1", command: ["true"]}]
    outputs: {artifacts: [{name: o, path: /out, archive: {none: {}}, s3: {key: "a/{{workflow.name}}"}}]}
  - name: ask
    suspend: {duration: "0"}
  - name: bye
    inputs: {parameters: [{name: m, value: none}]}
    suspend: {duration: "0"}
"""
DOCUMENTS = list(yaml.safe_load_all(EVERYTHING))
FIELDS = [place for place, (one, key) in enumerate(places(DOCUMENTS)) if isinstance(one[key], str)]


def hostile(tmp_path: Path, field: int, value: str, where: str) -> None:
    documents = copy.deepcopy(DOCUMENTS)
    container, key = places(documents)[field]
    container[key] = {"instead": value, "behind": container[key] + value, "before": value + container[key]}[where]
    try:
        run_whole(tmp_path, documents)
    except BaseException as error:
        error.add_note(f"{key}: {container[key]!r}")
        raise


def test_the_workflow_with_every_field_runs(tmp_path: Path) -> None:
    assert run_whole(tmp_path, EVERYTHING) == ("Succeeded", "")


@pytest.mark.parametrize("part", range(4))
def test_a_hostile_value_in_every_field_is_carried_or_refused_by_one_line(tmp_path: Path, part: int) -> None:
    for number, field in enumerate(FIELDS[part::4]):
        where = ("instead", "behind")[number % 2]
        hostile(tmp_path / str(field), field, HOSTILE[(7 * number + part) % len(HOSTILE)], where)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_every_hostile_value_in_every_field(tmp_path: Path, part: int) -> None:
    for field in FIELDS[part::4]:
        for number, value in enumerate(HOSTILE):
            for where in ("instead", "behind", "before"):
                hostile(tmp_path / f"{field}-{number}-{where}", field, value, where)


def test_a_manifest_of_two_megabytes_runs(tmp_path: Path) -> None:
    script = {"image": "i", "command": ["sh"], "source": "# {{inputs.parameters.big}}\n" + "x" * 1_000_000}
    main = {"name": "main", "inputs": {"parameters": [{"name": "big"}]}, "script": script}
    manifest = workflow(main, arguments={"parameters": [{"name": "big", "value": "ü{" * 400_000}]})
    text = yaml.safe_dump(manifest, allow_unicode=True)
    assert len(text.encode()) > 2_000_000
    assert run_whole(tmp_path, text)[0] == "Succeeded"


def test_five_thousand_tasks_are_read_and_run_in_a_few_seconds(tmp_path: Path) -> None:
    tasks = [{"name": f"t{n}", "template": "nap", **({"depends": f"t{n // 2}"} if n else {})} for n in range(5000)]
    manifest = workflow({"name": "main", "dag": {"tasks": tasks}}, {"name": "nap", "suspend": {"duration": "0"}})
    began = time.process_time()
    assert run_whole(tmp_path, yaml.safe_dump(manifest))[0] == "Succeeded"
    assert time.process_time() - began < 30


def test_a_mistake_among_five_thousand_tasks_is_named_by_its_line(tmp_path: Path) -> None:
    tasks = [{"name": f"t{n}", "template": "nowhere" if n == 4999 else "nap"} for n in range(5000)]
    nap = {"name": "nap", "suspend": {"duration": "0"}}
    became, line = run_whole(tmp_path, yaml.safe_dump(workflow({"name": "main", "dag": {"tasks": tasks}}, nap)))
    assert became == "refused" and "tasks[4999]" in line and "'nowhere' undefined" in line


def test_what_is_too_large_to_be_a_manifest_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as out:
        out.truncate(1 << 30)
    with pytest.raises(UserError, match="is larger than"):
        parse(file)


@pytest.mark.parametrize(
    "loop",
    [{"withSequence": {"count": "2000000000"}}, {"withSequence": {"start": "-9999999999", "end": "99999999999"}}],
)
def test_a_loop_without_measure_is_one_line(tmp_path: Path, loop: dict) -> None:
    nap = {"name": "nap", "suspend": {"duration": "0"}}
    task = {"name": "t", "template": "nap", **loop}
    became, line = run_whole(tmp_path, yaml.safe_dump(workflow({"name": "main", "steps": [[task]]}, nap)))
    assert became != "Succeeded" and "items" in line and "\n" not in line
