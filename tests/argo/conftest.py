"""The project on a real cluster: the overlay `dev` in a namespace of its own, removed again at the end.

Needs KUBECONFIG with the rights of an administrator, ARGO_SERVER, and the image of images/build in
the cluster (POSTTRAIN_TEST_IMAGE, default posttrain:0.1.0).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
POSTTRAIN = str(ROOT / "bin" / "posttrain")
IMAGE = os.environ.get("POSTTRAIN_TEST_IMAGE", "posttrain:0.1.0")
NAMESPACE = "posttrain-test"
ACCOUNT = "posttrain-workflow"
SECONDS = float(os.environ.get("POSTTRAIN_E2E_SECONDS", "280"))  # for the route; about 150 on two idle cores

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Deployment:
    """What `kubectl apply -k` made: the profile of its runs, and the workspace that its claim stands for."""

    profile: Path
    workspace: Path


def kubectl(*arguments: str, check: bool = True, text: str | None = None) -> Result:
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done


def posttrain(*arguments: str | Path, timeout: float = SECONDS) -> Result:
    """The command line as a user starts it."""
    return subprocess.run([POSTTRAIN, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def on_cluster(*arguments: str | Path) -> Result:
    """A command on the runs of the cluster."""
    return posttrain(*arguments, "--on", "cluster", "-n", NAMESPACE)


def workflow(*command: str, **spec: Any) -> dict[str, Any]:
    """A workflow of one step."""
    container = {"image": IMAGE, "command": list(command)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "test-"},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "entrypoint": "main",
            "templates": [
                {"name": "main", "dag": {"tasks": [{"name": "only", "template": "leaf"}]}},
                {"name": "leaf", "container": container},
            ],
        }
        | spec,
    }


def say(line: str) -> None:
    """To whoever watches `make test-argo`, whatever pytest captures."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    remove()
    workspace = tmp_path_factory.mktemp("cluster") / "workspace"
    overlay = workspace.with_name("overlay")
    repository = artifact_repository()
    command = [ROOT / "k8s/dev-overlay", overlay, "--workspace", workspace, "--namespace", NAMESPACE, "--image", IMAGE]
    made = subprocess.run([*command, *repository.arguments], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    say(f"kubectl apply -k: the overlay dev in namespace {NAMESPACE}")
    kubectl("apply", "-k", str(overlay))
    repository.keep_keys()
    yield Deployment(overlay / "profile.yaml", workspace)
    remove()


def remove() -> None:
    """The namespace and what it mounts; the priority classes may serve others, and stay."""
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    volumes = json.loads(kubectl("get", "persistentvolumes", "-o", "json").stdout)["items"]
    for volume in volumes:
        if volume["spec"].get("claimRef", {}).get("namespace") == NAMESPACE:
            kubectl("delete", "persistentvolume", volume["metadata"]["name"])


@dataclass(frozen=True)
class Repository:
    """The S3 store that the cluster's Argo uses by default: `arguments` for k8s/dev-overlay, and its keys."""

    arguments: tuple[str, ...] = ()
    keys: tuple[str, str] = ("", "")

    def keep_keys(self) -> None:
        if self.arguments:
            access, secret = self.keys
            kubectl("-n", NAMESPACE, "create", "secret", "generic", "posttrain-artifacts",
                    f"--from-literal=accesskey={access}", f"--from-literal=secretkey={secret}")  # fmt: skip


def artifact_repository() -> Repository:
    """As the controller's configuration says; none where it names no S3 store with keys."""
    name = "metadata.name=workflow-controller-configmap"
    listed = kubectl("get", "configmaps", "-A", "-o", "json", "--field-selector", name)
    for found in json.loads(listed.stdout)["items"]:
        s3 = (yaml.safe_load(found.get("data", {}).get("artifactRepository") or "") or {}).get("s3", {})
        if "accessKeySecret" in s3:
            scheme = "http" if s3.get("insecure") else "https"
            where = found["metadata"]["namespace"]
            keys = [_secret(where, s3[key]) for key in ("accessKeySecret", "secretKeySecret")]
            return Repository(("--artifacts", f"{scheme}://{s3['endpoint']}/{s3['bucket']}"), (keys[0], keys[1]))
    return Repository()


def _secret(namespace: str, selector: dict[str, str]) -> str:
    found = json.loads(kubectl("-n", namespace, "get", "secret", selector["name"], "-o", "json").stdout)
    return base64.b64decode(found["data"][selector["key"]]).decode()


@dataclass
class Started:
    """A command that runs beside the tests; `result` waits for it."""

    process: subprocess.Popen[str]
    done: Result | None = None

    def result(self) -> Result:
        if self.done is None:
            out, err = self.process.communicate(timeout=SECONDS)
            self.done = subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)
        return self.done


@pytest.fixture(scope="session")
def submitted(deployment: Deployment) -> Iterator[Started]:
    """The route sft with the tiny model, on its way through the cluster while other tests run."""
    say("posttrain submit sft --preset tiny --watch, beside the other tests")
    command = [POSTTRAIN, "submit", "sft", "--preset", "tiny", "--name", "tiny", "--watch"]
    command += ["-n", NAMESPACE, "--profile", str(deployment.profile)]
    started = Started(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    yield started
    if started.done is None:
        started.process.kill()
        started.process.wait()
