"""A workspace with a tiny model and sums to learn, and steps started in it as processes."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import shutil
import signal
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from posttrain.contract import StepContext
from posttrain.contract.digest import digest_tree
from posttrain.contract.runner import main
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


# Children are forked from a server that has imported what a step imports: real processes, without 6 s of imports each.
_LIBC = ctypes.CDLL(None, use_errno=True)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["steps.sft.run", "steps.cold_start.run"])


@dataclass(frozen=True)
class SmallDisk:
    """A file system of `size` bytes at `path` that only the step sees; what is on it at the end is copied to `kept`."""

    path: Path
    size: int
    kept: Path

    def mount(self) -> None:
        new_namespace, private = 0x00020000, 1 << 18 | 1 << 14
        for result in (
            _LIBC.unshare(new_namespace),
            _LIBC.mount(b"none", b"/", None, private, None),
            _LIBC.mount(b"none", bytes(self.path), b"tmpfs", 0, f"size={self.size}".encode()),
        ):
            if result:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _run_step(step: str, arguments: list[str], said: Path, disk: SmallDisk | None) -> None:
    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 2)
    if disk:
        disk.mount()
    try:
        main(import_module(f"steps.{step}").SPEC, arguments)
    finally:
        if disk:
            shutil.copytree(disk.path, disk.kept)


@dataclass(frozen=True)
class Step:
    process: Any
    said: Path

    def end(self) -> tuple[int, str]:
        self.process.join(110)
        return self.process.exitcode, self.said.read_text()

    def kill(self) -> bool:
        """kill -9; false where it had ended by itself."""
        self.process.kill()
        self.process.join(10)
        return self.process.exitcode == -signal.SIGKILL


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

    def arguments(
        self, run: str, config: dict[str, Any], *, step: str = "sft", seed: int = 0, **inputs: str
    ) -> list[str]:
        given = {"model": self.model, "train": self.train, "validation": self.validation} | inputs
        return [
            "--workspace", str(self.path), "--run", run, "--step", step, "--seed", str(seed),
            "--config", json.dumps(SETTINGS | config), "--outputs", str(self.path / "outputs" / run),
            *[part for name, value in given.items() for part in ("--input", f"{name}={value}")],
        ]  # fmt: skip

    def start(
        self, run: str, config: dict[str, Any], *, step: str = "sft", disk: SmallDisk | None = None, **rest: Any
    ) -> Step:
        """The step in a process of its own, begun."""
        arguments = self.arguments(run, config, step=step, **rest)
        process = _FORKS.Process(target=_run_step, args=(step, arguments, self._said, disk))
        process.start()
        return Step(process, self._said)

    def run(self, run: str, config: dict[str, Any], **rest: Any) -> tuple[int, str]:
        """The step in a process of its own to its end: exit code, and what it said on stderr."""
        return self.start(run, config, **rest).end()

    @property
    def _said(self) -> Path:
        return self.path / "stderr"

    def outputs(self, run: str, step: str = "sft") -> dict[str, Any]:
        return json.loads((self.path / "runs" / run / step / "record.json").read_text())["outputs"]

    def curve(self, run: str, step: str = "sft") -> list[tuple[int, str, float]]:
        """The points of metrics.jsonl without what is measured, as far as it is written."""
        path = self.path / "runs" / run / step / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [
            (point["step"], name, value)
            for point in map(json.loads, lines)
            for name, value in point.items()
            if name in ("loss", "grad_norm", "learning_rate", "validation_loss")
        ]

    def updates(self, run: str, step: str = "sft") -> int:
        """How many updates the curve of a step that may still run has."""
        path = self.path / "runs" / run / step / "metrics.jsonl"
        return path.read_bytes().count(b'"grad_norm"') if path.exists() else 0


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
