"""Progress as a log gets it: whole lines, so that what others write stands between them and not in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from posttrain.contract.progress import Progress, latest


def test_a_log_gets_lines_and_what_others_write_keeps_its_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with Progress(tmp_path).task("train", total=4, unit="rows") as task:
        print("of another library", file=sys.stderr)
        for loss in (2.0, 1.0):
            task.advance(2, loss=loss)
    written = capsys.readouterr().err
    assert "\r" not in written
    first, other, *last = written.splitlines()
    assert other == "of another library"
    assert first.startswith("train:   0%") and all(line.startswith("train: 100%") for line in last)
    assert len(set(last)) == len(last) >= 1
    assert "loss=1" in last[-1]


def test_the_last_entry_is_what_a_watcher_reads(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    with Progress(tmp_path).task("train", total=4, unit="rows") as task:
        task.advance(1, loss=2.5)
    entry = latest(tmp_path)
    assert entry is not None
    assert (entry["task"], entry["done"], entry["total"], entry["unit"], entry["loss"]) == ("train", 1, 4, "rows", 2.5)
    with open(tmp_path / "progress.jsonl", "a") as half:
        half.write('{"time": 1, "do')
    assert latest(tmp_path) == entry
