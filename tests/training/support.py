"""A workspace with a tiny model and sums to learn, and steps started in it as processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from posttrain.contract import StepContext
from posttrain.contract.digest import digest_tree
from posttrain.lake import write_table
from posttrain.models import tiny
from posttrain.models.config import TinyShape

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = {
    "batch_tokens": 256, "row_tokens": 128, "sequence_length": 64, "learning_rate": 3e-3, "threads": 1, "device": "cpu",
}  # fmt: skip


def sums(count: int, *, seed: int, wrong: bool = False) -> list[dict[str, Any]]:
    """Prepared rows: sums of two or three numbers of unlike length."""
    chance, rows = random.Random(seed), []
    for index in range(count):
        terms = [chance.randrange(100) for _ in range(chance.choice((2, 3)))]
        answer = str(sum(terms) + wrong)
        messages = [
            {"role": "user", "content": " + ".join(map(str, terms)) + " ="},
            {"role": "assistant", "content": f"<answer>{answer}</answer>"},
        ]
        rows.append(
            {
                "id": f"sum-{seed}-{index:04d}", "source": "sums", "messages": json.dumps(messages),
                "answer": str(sum(terms)), "verifier": "numeric", "metadata": "{}",
                "tier": "easy" if len(terms) == 2 else "hard", "tokens": 0,
            }
        )  # fmt: skip
    return rows


@dataclass(frozen=True)
class Workspace:
    path: Path
    model: str
    train: str
    validation: str

    def fork(self, target: Path) -> Workspace:
        """A copy to run in, so that no test sees another's runs."""
        shutil.copytree(self.path, target)
        return Workspace(target, self.model, self.train, self.validation)

    def context(self, run: str, step: str = "sft", seed: int = 0) -> StepContext:
        context = StepContext(self.path, run, step, seed)
        context.directory.mkdir(parents=True, exist_ok=True)
        return context

    def command(self, run: str, config: dict[str, Any], *, step: str = "sft", **inputs: str) -> list[str]:
        given = {"model": self.model, "train": self.train, "validation": self.validation} | inputs
        return [
            sys.executable, "-m", f"steps.{step}", "--workspace", str(self.path), "--run", run, "--step", step,
            "--config", json.dumps(SETTINGS | config), "--outputs", str(self.path / "outputs" / run),
            *[part for name, value in given.items() for part in ("--input", f"{name}={value}")],
        ]  # fmt: skip

    def start(self, run: str, config: dict[str, Any], *, step: str = "sft", **inputs: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(run, config, step=step, **inputs),
            cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def outputs(self, run: str, step: str = "sft") -> dict[str, Any]:
        return json.loads((self.path / "runs" / run / step / "record.json").read_text())["outputs"]

    def losses(self, run: str, step: str = "sft") -> list[tuple[int, str, float]]:
        """The curve without its measured values."""
        points = map(json.loads, (self.path / "runs" / run / step / "metrics.jsonl").read_text().splitlines())
        return [
            (point["step"], name, value)
            for point in points
            for name, value in point.items()
            if name in ("loss", "grad_norm", "learning_rate", "validation_loss")
        ]


def make_workspace(path: Path) -> Workspace:
    tiny.build(path / "models" / "tiny", TinyShape(), seed=0)
    return Workspace(
        path,
        f"models/tiny#{digest_tree(path / 'models' / 'tiny')}",
        table(path, "train", sums(96, seed=1)),
        table(path, "validation", sums(24, seed=2)),
    )


def table(path: Path, name: str, rows: list[dict[str, Any]]) -> str:
    return str(write_table(path, f"lake/{name}.lance", pa.Table.from_pylist(rows)))
