"""vLLM finds Etha's plug-in, from a checkout as from an installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

from posttrain.etha import plugin

GROUP = "vllm.general_plugins"
FIND = f"""
from importlib.metadata import entry_points
for each in entry_points(group={GROUP!r}, name={plugin.NAME!r}):
    print(each.name, each.value, each.load().__name__)
"""


def test_a_process_that_is_started_for_it_finds_it_wherever_it_runs(tmp_path: Path) -> None:
    environment = os.environ | plugin.variables()
    found = subprocess.run([sys.executable, "-c", FIND], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.stdout.splitlines() == ["etha posttrain.etha.plugin:register register"], found.stderr


def test_a_checkout_says_what_an_installation_says() -> None:
    root = Path(plugin.__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (said,) = (root / "posttrain" / "etha" / "entry_points").glob("*.dist-info")
    ours = Distribution.at(said)
    assert (ours.metadata["Name"], ours.version) == (project["name"], project["version"])
    assert {each.name: each.value for each in ours.entry_points if each.group == GROUP} == project["entry-points"][
        GROUP
    ]
