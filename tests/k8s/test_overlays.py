"""The overlays, as kubectl builds them; and the overlay that a machine makes for itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows.definition import define
from workflows.profile import load_profile

ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "k8s" / "overlays"
JSON = dict[str, Any]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")


def built(directory: Path) -> list[JSON]:
    done = subprocess.run(["kubectl", "kustomize", directory], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def made(directory: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    workspace = directory / "workspace"
    command = [ROOT / "k8s" / "dev-overlay", directory / "overlay", "--workspace", workspace, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@needs_kubectl
@pytest.mark.parametrize("overlay", ["dev", "production"])
def test_what_a_profile_names_is_there(overlay: str) -> None:
    objects = {(one["kind"], one["metadata"]["name"]) for one in built(OVERLAYS / overlay)}
    profile = load_profile({"production": "cluster"}.get(overlay, overlay))
    assert ("ServiceAccount", profile.service_account) in objects
    for volume in profile.volumes.values():
        assert not volume.claim or ("PersistentVolumeClaim", volume.claim) in objects
    classes = {s.priority_class for s in [profile.defaults, *profile.steps.values()] if s.priority_class}
    assert classes
    assert {("PriorityClass", name) for name in classes} <= objects


@needs_kubectl
@pytest.mark.parametrize("overlay", ["dev", "production"])
def test_nothing_of_one_machine_and_no_secret_is_in_the_project(overlay: str) -> None:
    objects = built(OVERLAYS / overlay)
    assert not {"Secret", "PersistentVolume"} & {one["kind"] for one in objects}
    assert "hostPath" not in yaml.safe_dump(objects)


@needs_kubectl
def test_every_rule_names_what_it_allows(tmp_path: Path) -> None:
    rules = [r for one in built(OVERLAYS / "production") if one["kind"] == "Role" for r in one["rules"]]
    assert rules
    assert not any("*" in [*r["apiGroups"], *r["resources"], *r["verbs"]] for r in rules)


@needs_kubectl
def test_the_overlay_of_a_machine_mounts_what_is_installed_on_it(tmp_path: Path) -> None:
    done = made(
        tmp_path,
        "--namespace",
        "elsewhere",
        "--image",
        "registry.example/posttrain:2",
        "--artifacts",
        "http://s3:9000/b",
    )
    assert done.returncode == 0, done.stderr
    objects = built(tmp_path / "overlay")
    volumes = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "PersistentVolume"}
    assert volumes["elsewhere-workspace"]["hostPath"]["path"] == str(tmp_path / "workspace")
    assert {v["claimRef"]["namespace"] for v in volumes.values()} == {"elsewhere"}
    assert all(o["metadata"].get("namespace", "elsewhere") == "elsewhere" for o in objects)
    repository = next(one for one in objects if one["metadata"]["name"] == "artifact-repositories")
    assert yaml.safe_load(repository["data"]["posttrain"])["s3"]["endpoint"] == "s3:9000"
    manifest = define("sft", str(tmp_path / "overlay" / "profile.yaml"), preset="tiny").render("x")
    images = {t["container"]["image"] for t in manifest["spec"]["templates"] if "container" in t}
    assert images == {"registry.example/posttrain:2"}
    claims = {
        v["persistentVolumeClaim"]["claimName"] for v in manifest["spec"]["volumes"] if "persistentVolumeClaim" in v
    }
    assert claims <= {one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workspac", "x"], "no such option"),
        (["--image"], "needs a value"),
        (["--artifacts", "s3://b"], "is no http"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = made(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
