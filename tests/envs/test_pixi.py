"""pixi.lock fits pixi.toml: by pixi's own solver where the checker is at hand, and in plain terms anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECKER = Path(os.environ.get("POSTTRAIN_PIXI_LOCK") or ROOT.parent / "shared" / "pixi" / "lock")
MANIFEST: dict[str, Any] = tomllib.loads((ROOT / "pixi.toml").read_text())
LOCK: dict[str, Any] = yaml.load((ROOT / "pixi.lock").read_text(), Loader=yaml.CSafeLoader)


@pytest.mark.skipif(not CHECKER.exists(), reason="the lock's checker is not here: name it in POSTTRAIN_PIXI_LOCK")
def test_the_solver_finds_that_the_lock_fits() -> None:
    done = subprocess.run([sys.executable, CHECKER, ROOT / "pixi.toml", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not CHECKER.exists(), reason="the lock's checker is not here: name it in POSTTRAIN_PIXI_LOCK")
def test_the_solver_finds_that_another_manifest_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text((ROOT / "pixi.toml").read_text().replace('gxx = "14.*"', 'gxx = "13.*"'))
    (tmp_path / "pixi.lock").write_text((ROOT / "pixi.lock").read_text())
    done = subprocess.run([sys.executable, CHECKER, tmp_path / "pixi.toml", "--check"], capture_output=True, text=True)
    assert done.returncode == 1 and "gxx" in done.stderr


def test_every_environment_is_declared_and_locked() -> None:
    names = {"control", "cpu", "dev", "train", "rollout"}
    assert set(MANIFEST["environments"]) == names
    assert set(LOCK["environments"]) == names | {"default"}


@pytest.mark.parametrize("name", MANIFEST["environments"])
def test_what_is_asked_for_is_locked(name: str) -> None:
    table = MANIFEST["environments"][name]
    features = table if isinstance(table, list) else table.get("features", [])
    asked = dict(MANIFEST["dependencies"])
    for feature in features:
        asked |= MANIFEST["feature"][feature]["dependencies"]
    for packages in LOCK["environments"][name]["packages"].values():
        files = [entry["conda"].rpartition("/")[2] for entry in packages]
        held = {file.rsplit("-", 2)[0]: file.rsplit("-", 2)[1] for file in files}
        for package, spec in asked.items():
            version = spec if isinstance(spec, str) else spec["version"]
            assert package in held
            if version.endswith(".*"):
                assert f"{held[package]}.".startswith(version.removesuffix("*"))


def test_every_locked_package_has_its_hash() -> None:
    hashed = {package["conda"] for package in LOCK["packages"] if len(package["sha256"]) == 64}
    for environment in LOCK["environments"].values():
        for packages in environment["packages"].values():
            assert {entry["conda"] for entry in packages} <= hashed
