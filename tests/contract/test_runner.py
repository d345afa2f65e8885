"""A step as a process: what it is given is checked first, what it did is found again, how it ends is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SPEC = """
from __future__ import annotations
from dataclasses import dataclass
from omegaconf import MISSING
from posttrain.contract import StepSpec, measured
from posttrain.errors import UserError

@dataclass(frozen=True)
class Inputs:
    model: str
    rows: int = 0

@dataclass(frozen=True)
class Outputs:
    text: str
    score: float
    seconds: float = measured(0.0)

@dataclass
class Config:
    mode: str = "work"
    learning_rate: float = 0.1

    def __post_init__(self):
        if self.learning_rate <= 0:
            raise UserError("must be positive", field="learning_rate", value=self.learning_rate)

SPEC = StepSpec("probe", "probe", "A step for tests.", "control", Inputs, Outputs, Config)
"""
MAIN = """
from posttrain.contract.runner import main
from probe import SPEC

if __name__ == "__main__":
    main(SPEC)
"""
RUN = """
import errno, os, sys, time
from probe import Outputs
from posttrain.contract.files import write_atomic
from posttrain.errors import UserError

def run(context, inputs, config):
    with open(context.workspace / "started", "a") as out:
        out.write("x")
    context.log(1, loss=2.0)
    context.log(2, loss=1.0)
    if config.mode == "refuse":
        raise UserError("has no rows", field="probe.model", value=inputs.model, remedy="give another")
    if config.mode == "defect":
        raise RuntimeError("a defect")
    if config.mode == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(context.directory / "weights"))
    if config.mode == "wait":
        print("waiting", flush=True)
        time.sleep(60)
    if config.mode == "keep":
        write_atomic(context.workspace / "models" / "kept", "weights")
        return Outputs("models/kept#sha256:" + "0" * 64, 0.5)
    return Outputs(f"{inputs.model} {inputs.rows} {context.seed}", config.learning_rate / 3, time.time())
"""


class Step:
    def __init__(self, base: Path):
        self.base, self.workspace = base, base / "workspace"
        self.workspace.mkdir()
        package = base / "packages" / "probe"
        package.mkdir(parents=True)
        for name, text in (("__init__", SPEC), ("__main__", MAIN), ("run", RUN)):
            (package / f"{name}.py").write_text(text)
        self.directory = self.workspace / "runs" / "r" / "probe"

    def start(self, *arguments: str, **config: object) -> subprocess.Popen[str]:
        given = arguments or ("--input", "model=m")
        return subprocess.Popen(
            [
                sys.executable, "-m", "probe", "--workspace", str(self.workspace), "--run", "r",
                "--config", json.dumps(config), "--outputs", str(self.base / "outputs"), *given,
            ],
            env=os.environ | {"PYTHONPATH": f"{self.base / 'packages'}:{ROOT}"}, cwd=self.base,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def call(self, *arguments: str, **config: object) -> tuple[int, str]:
        """Exit code and the last line on stderr."""
        process = self.start(*arguments, **config)
        _, err = process.communicate(timeout=60)
        return process.returncode, err.rstrip().rpartition("\n")[2]

    @property
    def times_started(self) -> int:
        marks = self.workspace / "started"
        return len(marks.read_text()) if marks.exists() else 0

    @property
    def outputs(self) -> dict[str, str]:
        return {p.name: p.read_text() for p in sorted((self.base / "outputs").iterdir())}

    @property
    def record(self) -> dict[str, object]:
        return json.loads((self.directory / "record.json").read_text())


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def test_a_step_writes_outputs_and_its_record(step: Step) -> None:
    assert step.call("--input", "model=a=b", "--input", "rows=3", "--seed", "7", learning_rate=0.3)[0] == 0
    outputs = step.outputs
    assert (outputs["text"], float(outputs["score"])) == ("a=b 3 7", 0.3 / 3)
    record = step.record
    assert record["inputs"] == {"model": "a=b", "rows": 3}
    assert record["config"] == {"mode": "work", "learning_rate": 0.3}
    assert (record["seed"], record["measured"]) == (7, ["seconds"])
    assert record["outputs"]["score"] == 0.3 / 3
    assert len((step.directory / "metrics.jsonl").read_text().splitlines()) == 2


def test_started_again_it_finds_its_outputs(step: Step) -> None:
    assert step.call()[0] == 0
    first, record = step.outputs, step.record
    for file in (step.base / "outputs").iterdir():
        file.unlink()
    assert step.call()[0] == 0
    assert (step.outputs, step.record, step.times_started) == (first, record, 1)


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (("--input", "model=other"), {}), (("--input", "model=m", "--seed", "1"), {}),
        (("--input", "model=m"), {"learning_rate": 0.2}),
    ],
)  # fmt: skip
def test_asked_for_something_else_it_runs(step: Step, arguments: tuple[str, ...], config: dict[str, float]) -> None:
    assert step.call()[0] == 0
    assert step.call(*arguments, **config)[0] == 0
    assert step.times_started == 2
    assert len((step.directory / "metrics.jsonl").read_text().splitlines()) == 2  # the curves of this request alone


def test_when_what_it_made_is_gone_it_runs_again(step: Step) -> None:
    assert step.call(mode="keep")[0] == 0
    assert step.call(mode="keep")[0] == 0
    assert step.times_started == 1
    (step.workspace / "models" / "kept").unlink()
    assert step.call(mode="keep")[0] == 0
    assert step.times_started == 2


@pytest.mark.parametrize("damage", ["", "null", "[1]", '{"step": 1}', "\udcff"])
def test_a_damaged_record_is_no_record(step: Step, damage: str) -> None:
    assert step.call()[0] == 0
    (step.directory / "record.json").write_bytes(os.fsencode(damage))
    assert step.call()[0] == 0
    assert step.times_started == 2


@pytest.mark.parametrize(
    ("arguments", "config", "line"),
    [
        ((), {"learning_rat": 1}, "error: probe: probe.learning_rat: unknown key; did you mean learning_rate?"),
        (
            (), {"learning_rate": "fast"},
            "error: probe: probe.learning_rate: is not a number (got 'fast'); see `posttrain config`",
        ),
        ((), {"learning_rate": -1}, "error: probe: learning_rate: must be positive (got -1.0)"),
        (("--seed", "1"), {}, "error: probe: probe.model: is missing; give --input model=…"),
        (("--input", "model"), {}, "error: probe: --input: probe has no such input (got 'model'); known: model, rows"),
        (("--input", "model=m", "--input", "rows=3.5"), {}, "error: probe: probe.rows: is no int (got '3.5')"),
        (
            ("--input", "model=m", "--workspace", "/nowhere"), {},
            "error: probe: --workspace: no such directory (got '/nowhere')",
        ),
        (
            ("--input", "model=m", "--run", "../r"), {},
            "error: probe: --run: is no name (got '../r'); use letters, digits, '.', '_' and '-'",
        ),
        (("--input", "model=m", "--config", "[1]"), {}, "error: probe: --config: is no JSON object (got '[1]')"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line_before_anything(
    step: Step, arguments: tuple[str, ...], config: dict[str, object], line: str
) -> None:
    assert step.call(*arguments, **config) == (2, line)
    assert step.times_started == 0
    assert not step.directory.exists() and not (step.base / "outputs").exists()


@pytest.mark.parametrize(
    ("mode", "code", "line"),
    [
        ("refuse", 2, "error: probe: probe.model: has no rows (got 'm'); give another"),
        ("defect", 1, "RuntimeError: a defect"),
        ("full", 1, "; free some space and run the step again"),
    ],
)
def test_a_step_that_fails_says_why_and_leaves_no_output(step: Step, mode: str, code: int, line: str) -> None:
    ended, said = step.call(mode=mode)
    assert (ended, said.endswith(line)) == (code, True)
    assert not (step.base / "outputs").exists() and not (step.directory / "record.json").exists()


def test_a_step_that_is_told_to_stop_stops(step: Step) -> None:
    process = step.start(mode="wait")
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert time.monotonic() - started < 5
    assert not (step.directory / "record.json").exists()


@pytest.mark.parametrize("then", ["before", "after"])
def test_a_killed_step_is_resumed_with_its_curves(step: Step, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    """In another environment, or by other code, too: a checkpoint still holds, and only the step knows from where."""
    monkeypatch.setenv("POSTTRAIN_ENV_DIGEST", "before")
    process = step.start(mode="wait")
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.kill()
    process.communicate(timeout=20)
    monkeypatch.setenv("POSTTRAIN_ENV_DIGEST", then)
    process = step.start(mode="wait")
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.kill()
    process.communicate(timeout=20)
    assert step.times_started == 2
    assert len((step.directory / "metrics.jsonl").read_text().splitlines()) == 4
