"""The locked files: complete, by hash, the same version of a package everywhere, and no index named."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.imports import closure, modules, third_party

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ["control", "cpu", "dev", "train", "rollout"]
FILES = [*ENVIRONMENTS, "torch-cuda", "tools", "build"]
CONDA = {"torch", "triton", "flash-attn"}  # in `train` these are the conda layer's


@cache
def locked(name: str) -> dict[str, list[Requirement]]:
    text = (ROOT / "envs" / f"{name}.txt").read_text().replace("\\\n", " ")
    found: dict[str, list[Requirement]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line.partition("--hash")[0])
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def asked(name: str) -> list[Requirement]:
    found = []
    for line in (ROOT / "envs" / f"{name}.in").read_text().splitlines():
        if line.startswith("-r "):
            found += asked(line.removeprefix("-r ").removesuffix(".in"))
        elif line and not line.startswith("#"):
            found.append(Requirement(line))
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_pinned_and_hashed(name: str) -> None:
    text = (ROOT / "envs" / f"{name}.txt").read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; [^#]*?)?( +--hash=sha256:[0-9a-f]{64})+", line), line[:100]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_asked_for_is_locked(name: str) -> None:
    for requirement in asked(name):
        versions = locked(name).get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name}: run envs/lock {name}"
        for found in versions:
            assert requirement.specifier.contains(str(found.specifier).removeprefix("==")), f"run envs/lock {name}"


@pytest.mark.parametrize(
    ("small", "large"), [("control", "cpu"), ("cpu", "dev"), ("control", "train"), ("control", "rollout")]
)
def test_a_package_has_one_version_wherever_it_is(small: str, large: str) -> None:
    for name, versions in locked(small).items():
        assert [str(r) for r in locked(large)[name]] == [str(r) for r in versions], name


def test_the_torch_at_hand_is_locked() -> None:
    """Both builds of the version are: PyPI's, and the CPU build that pip finds where it is configured to."""
    text = (ROOT / "envs" / "cpu.txt").read_text()
    block = text[text.index("\ntorch==") :].partition("\n\n")[0]
    assert block.splitlines()[1].startswith(f"torch=={torch.__version__.partition('+')[0]} ")
    for name in ("torch-cuda", "cpu", "dev"):
        assert all(not package.startswith(("nvidia-", "cuda-")) for package in locked(name)) == (name != "torch-cuda")


def test_train_leaves_torch_to_conda() -> None:
    assert not CONDA & set(locked("train"))


# What runs in `control` as a whole, functions and all; of what these reach, importing it must work there.
CONTROL = ("workflows", "posttrain.cli", "posttrain.argo", "posttrain.engine", "posttrain.report", "posttrain.contract")

TABLES = ("posttrain.cli.stream",)  # bin/posttrain runs this one in `cpu`


def test_what_the_control_environment_imports_is_locked() -> None:
    own = {module for module in modules() if module.startswith(CONTROL) and module not in TABLES}
    check_locked("cpu", third_party(TABLES))
    check_locked("control", [*third_party(own), *third_party(closure(own, at_top=True), at_top=True)])


@pytest.mark.parametrize("name", ["cpu", "train", "rollout"])
def test_what_a_step_imports_is_locked(name: str) -> None:
    """Whatever the steps of an environment reach, at the top of a module or in a function."""
    specs = [import_module(m).SPEC for m in modules() if m.startswith("steps.") and m.count(".") == 1]
    start = [f"{spec.package}.run" for spec in specs if name in (spec.environment, "cpu")]
    check_locked(name, third_party(closure(start)))


def check_locked(name: str, wanted: Iterable[tuple[str, str]]) -> None:
    distributions = packages_distributions()
    for module, imported in wanted:
        known = {canonicalize_name(d).removesuffix("-cpu") for d in distributions.get(imported, [imported])}
        held = {package.removesuffix("-cpu") for package in locked(name)} | (CONDA if name == "train" else set())
        assert known & held, f"{module} imports {imported}, which envs/{name}.in does not bring"
