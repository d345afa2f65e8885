"""The step `prepare_data` as a process: what it leaves, and what faults do to it.

Each run is a process of its own, forked from one that has the libraries loaded.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import lance
import pytest

from posttrain.contract import Ref
from posttrain.data import schema
from posttrain.data.text import units
from posttrain.lake import open_table
from posttrain.models import tiny
from posttrain.models.config import TinyShape

SUMS = {
    "name": "sums",
    "sources": [{"dataset": "chain_sum", "size": 1500, "question": "{expression}", "parameters": {"max_terms": 3}}],
    "split": {"validation": 20, "evaluation": 50},
}


@pytest.fixture(scope="session")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["steps.prepare_data.run", "posttrain.data.sources.reasoning_gym"])
    return context


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    tiny.build(directory, TinyShape(), seed=0)
    return directory


class Step:
    """A workspace in which the step is started, with what one start said and left."""

    def __init__(self, processes, workspace: Path, model: Path):
        self._processes, self.workspace = processes, workspace
        shutil.copytree(model, workspace / "models/tiny")

    def start(self, config: dict, *, run: str = "r", file_limit: int = 0):
        self.said = self.workspace.with_suffix(f".{run}.said")
        argv = [
            "--workspace", str(self.workspace), "--run", run, "--config", json.dumps(config),
            "--input", "model=models/tiny", "--outputs", str(self.workspace.with_suffix(f".{run}.out")),
        ]  # fmt: skip
        child = self._processes.Process(target=_start, args=(argv, str(self.said), file_limit))
        child.start()
        return child

    def __call__(self, config: dict, *, run: str = "r", file_limit: int = 0) -> tuple[int, str]:
        """Exit code, and what was said on stderr."""
        child = self.start(config, run=run, file_limit=file_limit)
        child.join(120)
        return child.exitcode, self.said.read_text()

    def outputs(self, run: str = "r") -> dict[str, str]:
        return {file.name: file.read_text() for file in self.workspace.with_suffix(f".{run}.out").iterdir()}

    def rows(self, ref: str) -> list[dict]:
        return open_table(self.workspace, ref, field="x", verify=True).to_table().to_pylist()


def _start(argv: list[str], said: str, file_limit: int) -> None:
    from posttrain.contract.runner import main
    from steps.prepare_data import SPEC

    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    main(SPEC, argv)


@pytest.fixture
def step(processes, model, tmp_path) -> Step:
    return Step(processes, tmp_path / "workspace", model)


def one_line(said: str) -> str:
    """The error that a user reads: the last line, and no traceback before it."""
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert said.splitlines()[-1] == lines[0]
    return lines[0]


def tables(workspace: Path) -> set[str]:
    return {path.relative_to(workspace).as_posix() for path in workspace.glob("lake/*/*.lance")}


def test_it_leaves_three_tables_a_card_and_the_same_again(step):
    code, said = step(SUMS)
    assert code == 0, said
    first = step.outputs()
    train, validation, evaluation = (step.rows(first[n]) for n in ("train", "validation", "evaluation"))
    assert [len(evaluation), len(validation)] == [50, 20]
    assert [int(first[f"rows_{n}"]) for n in ("train", "validation", "evaluation")] == [len(train), 20, 50]
    for rows, with_target in ((train, True), (validation, True), (evaluation, False)):
        assert {schema.check_row(row, with_target=with_target) for row in rows} == {None}
        assert all(row["tokens"] > 0 for row in rows)
    asked = {units(json.loads(row["messages"])[-1]["content"]) for row in evaluation}
    assert not asked & {units(json.loads(row["messages"])[-2]["content"]) for row in train + validation}
    card = json.loads((step.workspace / "runs/r/prepare_data/card.json").read_text())
    assert card["sets"]["train"]["table"] == first["train"]
    assert first["card"] == "runs/r/prepare_data/card.md"
    assert "## Sets" in (step.workspace / first["card"]).read_text()

    code, said = step(SUMS, run="again")
    assert code == 0
    again = step.outputs("again")
    assert {n: v for n, v in again.items() if n != "card"} == {n: v for n, v in first.items() if n != "card"}
    assert lance.dataset(step.workspace / "lake/sums/train.lance").latest_version == 1


def test_bad_rows_go_to_the_quarantine_and_too_many_stop_the_run(step):
    lines = [json.dumps({"question": f"What comes after {n}?", "answer": str(n + 1)}) for n in range(60)]
    bad = ['{"question": "cut', json.dumps({"question": "no answer", "answer": ""})]
    (step.workspace / "rows.jsonl").write_text("\n".join([*lines, *bad]))
    config = {
        "name": "mine",
        "sources": [{"kind": "files", "path": "rows.jsonl"}],
        "split": {"validation": 5, "evaluation": 5},
    }
    code, said = step(config)
    assert code == 0, said
    assert step.outputs()["rows_quarantined"] == "2"
    kept = step.rows("lake/mine/quarantine.lance")
    assert [(r["place"], r["reason"], r["source"]) for r in kept] == [
        ("rows.jsonl:61", "malformed_json", "rows.jsonl"),
        ("rows.jsonl:62", "missing_value", "rows.jsonl"),
    ]
    assert kept[0]["content"] == bad[0]

    code, said = step(config | {"name": "strict", "quarantine_limit": 0.02}, run="strict")
    assert code == 2
    line = one_line(said)
    assert "2 of 62 rows are bad, more than 2.0%: malformed_json 1, missing_value 1" in line
    assert "lake/strict/quarantine.lance" in line
    assert tables(step.workspace) & {f"lake/strict/{n}.lance" for n in ("train", "validation", "evaluation")} == set()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"path": "gone.jsonl"}, r"prepare_data.sources\[0\].path: no such file \(got 'gone.jsonl'\)"),
        ({"path": "empty.jsonl"}, r"prepare_data.sources\[0\].path: is an empty file"),
        (
            {"path": "rows.jsonl", "columns": {"question": "q"}},
            r"columns.question: .*\(got 'q'\); it has answer, question",
        ),
        ({"path": "rows.jsonl", "column": {}}, r"prepare_data.sources\[0\].column: unknown key"),
        ({"path": "rows.jsonl"}, r"prepare_data.split.evaluation: only 1 different rows are left"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_set(step, source, says):
    (step.workspace / "empty.jsonl").touch()
    (step.workspace / "rows.jsonl").write_text('{"question": "1 + 1", "answer": 2}\n')
    code, said = step({"sources": [{"kind": "files"} | source]})
    assert code == 2
    assert re.search(says, one_line(said))
    assert not {t for t in tables(step.workspace) if "quarantine" not in t and "removed" not in t}
    assert not (step.workspace / "runs/r/prepare_data/record.json").exists()


def test_a_file_that_cannot_grow_is_one_line_and_leaves_no_half_table(step):
    code, said = step(SUMS, file_limit=60_000)
    assert code == 1
    assert "sums/train.lance: the disk is full (file too large)" in one_line(said)
    assert "lake/sums/train.lance" not in tables(step.workspace)
    assert not [p for p in (step.workspace / "lake/sums").iterdir() if p.name.startswith(".")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_line_and_the_next_start_succeeds(processes, model, tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", mount], check=True)
    try:
        step = Step(processes, mount / "workspace", model)
        code, said = step(SUMS | {"sources": [SUMS["sources"][0] | {"size": 4000}]})
        assert code == 1
        assert "the disk is full (no space left on device)" in one_line(said)
        assert not (step.workspace / "runs/r/prepare_data/record.json").exists()
        for name in tables(step.workspace):
            assert step.rows(name) is not None, "what stands under a final name can be read"
        subprocess.run(["mount", "-o", "remount,size=20m", mount], check=True)
        code, said = step(SUMS)
        assert code == 0, said
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def test_killed_anywhere_it_gives_the_same_digests(step, processes, model, tmp_path):
    other = Step(processes, tmp_path / "other", model)
    assert other(SUMS)[0] == 0
    wanted = {n: Ref.parse(v).digest for n, v in other.outputs().items() if "#" in v}

    progress = step.workspace / "runs/r/prepare_data/progress.jsonl"
    moments = [
        lambda: progress.exists(),
        lambda: progress.exists() and '"count tokens"' in progress.read_text(),
        lambda: (step.workspace / "lake/sums").is_dir() and any((step.workspace / "lake/sums").iterdir()),
        lambda: (step.workspace / "lake/sums/train.lance").exists(),
    ]
    for reached in moments:
        child = step.start(SUMS)
        deadline = time.monotonic() + 60
        while not reached() and child.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        shutil.rmtree(step.workspace / "runs", ignore_errors=True)  # it may have come no further
    code, said = step(SUMS)
    assert code == 0, said
    assert {n: Ref.parse(v).digest for n, v in step.outputs().items() if "#" in v} == wanted
