"""`record.json`: what a step was asked, in what it ran, and what came out.

Invariants: it is written last, so that its presence says that the step ended; it names
everything that determines the outputs (`request`), so that the same request finds them; and it
holds no secret, since inputs and configuration name secrets, never carry them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from posttrain.contract.digest import digest_tree, digest_value
from posttrain.contract.files import write_json

FILE = "record.json"
SCHEMA = 1
ROOT = Path(__file__).resolve().parents[2]  # the checkout or the image's copy of the project


@dataclass(frozen=True)
class Record:
    step: str
    package: str
    run: str
    seed: int
    inputs: dict[str, Any]
    config: dict[str, Any]
    environment: dict[str, str]
    source: dict[str, str]
    outputs: dict[str, Any] = field(default_factory=dict)
    measured: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def request(self) -> str:
        """Digest of all that determines the outputs. Two records with the same one must agree."""
        return digest_value(
            [self.package, self.seed, self.inputs, self.config, self.environment, self.source["digest"]]
        )

    @property
    def asked(self) -> str:
        """Digest of what the step was asked, whatever code does it and wherever."""
        return digest_value([self.package, self.seed, self.inputs, self.config])

    def write(self, directory: Path) -> None:
        write_json(directory / FILE, asdict(self) | {"request": self.request})


def read(directory: Path) -> Record | None:
    """The record in `directory`, or None where there is none that can be read."""
    try:
        stored = json.loads((directory / FILE).read_text())
        stored.pop("request", None)
        return Record(**stored)
    except (FileNotFoundError, ValueError, TypeError, AttributeError):  # absent, cut short, or none of ours
        return None


def environment() -> dict[str, str]:
    """Name and digest of the environment this process runs in, as `envs/run` tells it."""
    return {
        "name": os.environ.get("POSTTRAIN_ENV", "unknown"),
        "digest": os.environ.get("POSTTRAIN_ENV_DIGEST", "unknown"),
    }


@cache
def source() -> dict[str, str]:
    """The code that runs: the git revision where known, and a digest of the packages themselves."""
    digest = digest_value([digest_tree_of_python(ROOT / name) for name in ("posttrain", "steps")])
    return {"revision": os.environ.get("POSTTRAIN_REVISION") or _git_revision(), "digest": digest}


def digest_tree_of_python(root: Path) -> str:
    others = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file() and p.suffix != ".py"}
    return digest_tree(root, ignore=frozenset(others))


def host() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _git_revision() -> str:
    try:
        shown = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return shown.stdout.strip() or "unknown"
