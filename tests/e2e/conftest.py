"""The whole route with the tiny model, run once for the tests that only look at what it left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POSTTRAIN = str(ROOT / "bin" / "posttrain")
SECONDS = float(os.environ.get("POSTTRAIN_E2E_SECONDS", "280"))  # about 70 on two idle cores

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


def posttrain(*arguments: str | Path, timeout: float = SECONDS) -> Result:
    """The command line as a user starts it."""
    return subprocess.run([POSTTRAIN, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which `posttrain run sft --preset tiny --name tiny` ended well."""
    workspace = tmp_path_factory.mktemp("e2e") / "workspace"
    done = posttrain("run", "sft", "--preset", "tiny", "--name", "tiny", "-w", workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace
