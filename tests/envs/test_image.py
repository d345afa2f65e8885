"""The Containerfile copies all that a step needs: its files alone, laid out elsewhere, are the same project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for line in (ROOT / "images" / "Containerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            for source in sources:
                destination = tmp_path / target / ("" if (ROOT / source).is_dir() else source)
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, destination, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy2(ROOT / source, destination)
    return tmp_path


def test_it_names_the_same_environments(image: Path) -> None:
    for name in ("control", "cpu", "train", "rollout"):
        answers = {
            subprocess.run([root / "envs" / "install", "--where", name], capture_output=True, text=True).stdout
            for root in (image, ROOT)
        }
        assert len(answers) == 1 and answers != {""}


def test_its_source_is_the_same_and_renders_a_workflow(image: Path) -> None:
    code = (
        "from posttrain.contract.record import ROOT, digest_value, source; from workflows.definition import define;"
        "print(ROOT, source()['digest'], digest_value(define('sft', 'cluster').render('run')))"
    )
    seen = {}
    for root in (image, ROOT):
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", code], cwd=root, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        where, *seen[root] = done.stdout.split()
        assert where == str(root)
    assert seen[image] == seen[ROOT]
