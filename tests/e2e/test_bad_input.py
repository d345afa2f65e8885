"""What a user gets wrong: one clear line, a code that is not 0, and nothing under a final name."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from posttrain.isolation.bubblewrap import bubblewrap

from .conftest import POSTTRAIN, ROOT, SECONDS, Result, posttrain

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(600)]

FINAL = ("models", "lake", "releases", "checkpoints")


def the_line(done: Result) -> str:
    """The one line of complaint."""
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    return line


def left_in(workspace: Path) -> list[str]:
    """What stands under a final name."""
    return sorted(
        str(path.relative_to(workspace))
        for place in FINAL
        if (workspace / place).exists()
        for path in (workspace / place).iterdir()
        if not path.name.startswith(".")
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sft.learning_rat=1e-4", "error: sft.learning_rat: unknown key; did you mean learning_rate?"),
        ("sft.learning_rate=fast", "error: sft.learning_rate: "),
        ("prepare_model.source=path:nowhere", "error: prepare_model.source: "),
        ("prepare_data.sources=[{kind: files, path: nowhere.jsonl}]", "error: prepare_data.sources[0].path: "),
    ],
)
def test_refused_before_anything_starts(tmp_path: Path, given: str, expected: str) -> None:
    workspace = tmp_path / "workspace"
    done = posttrain("run", "sft", "--preset", "tiny", "--name", "bad", "-w", workspace, given)
    assert the_line(done).startswith(expected)
    assert done.returncode == 2
    assert left_in(workspace) == [] and not (workspace / "runs").exists()


def test_an_empty_data_file(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "empty.jsonl").touch()
    source = "prepare_data.sources=[{kind: files, path: empty.jsonl}]"
    line = the_line(posttrain("run", "sft", "--preset", "tiny", "--name", "bad", "-w", workspace, source))
    assert line.startswith("error: prepare_data.sources[0].path: ") and "empty.jsonl" in line
    assert left_in(workspace) == []


def test_a_model_without_a_chat_template(tmp_path: Path, finished: Path) -> None:
    workspace = tmp_path / "workspace"
    (source,) = (finished / "models").glob("tiny*")
    shutil.copytree(source, workspace / "mine", ignore=shutil.ignore_patterns("chat_template*"))
    settings = workspace / "mine" / "tokenizer_config.json"
    settings.write_text(json.dumps({k: v for k, v in json.loads(settings.read_text()).items() if k != "chat_template"}))
    given = "prepare_model.source=path:mine"
    line = the_line(posttrain("run", "sft", "--preset", "tiny", "--name", "bad", "-w", workspace, given))
    assert line.startswith("error: prepare_model.source: ") and "chat template" in line
    assert left_in(workspace) == []


def test_a_port_in_use(finished: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = the_line(posttrain("serve", "tiny", "--port", str(port), "-w", finished))
    assert f"{port}" in line and "port" in line


def test_a_full_disk(tmp_path: Path) -> None:
    """The workspace is a file system of its own, of half a megabyte."""
    bwrap = bubblewrap()
    if bwrap is None:
        pytest.skip("needs bubblewrap")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    command = [bwrap, "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"]
    command += ["--size", "500000", "--tmpfs", str(workspace)]
    started = f"{POSTTRAIN} run sft --preset tiny --name full -w {workspace}"
    script = f"{started}; code=$?; cd {workspace}; find * -maxdepth 3 >&2; exit $code"
    done = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    line = the_line(done)
    assert "disk is full" in line or "make room" in line
    step = line.split(": ")[1].replace("-", "_")
    made = {"prepare_model": "models/tiny-0", "prepare_data": "lake/tiny"}.get(step, f"runs/full/{step}/model")
    assert not {made, f"runs/full/{step}/record.json"}.intersection(done.stderr.splitlines())


@pytest.mark.slow
def test_a_failing_gate_stops_the_release(finished: Path) -> None:
    """The failure of a step is the line that the step itself said."""
    given = ["gate.min_difference=0.5", "--preset", "tiny", "--name", "worse"]
    line = the_line(posttrain("run", "sft", *given, "-w", finished))
    assert line.startswith("error: gate: failed: accuracy") and "below the +50.0 asked for" in line
    assert not (finished / "releases" / "tiny" / "worse").exists()
    shown = posttrain("get", "worse", "-w", finished).stdout
    assert "export" in shown and "omitted" in shown
    assert (finished / "runs/worse/report/report.html").exists()
