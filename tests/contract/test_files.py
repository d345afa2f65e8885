"""Under a final name stands the old or the new, whole: through kills, full disks, and readers at any moment."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posttrain.contract import files
from posttrain.contract.files import replace_directory, staged_directory, sync_tree, write_atomic, write_json

ROOT = Path(__file__).resolve().parents[2]

# Each is told to stop itself, by SIGKILL, before the system call of this name is made the nth time.
KILLED = """
import os, signal, sys
from pathlib import Path
from posttrain.contract import files

name, left, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
real = getattr(os, name)

def counted(*arguments, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)

setattr(os, name, counted)
{body}
"""
WRITE_FILE = 'files.write_atomic(directory / "record.json", "new" * 100_000)'
WRITE_DIRECTORY = """
with files.staged_directory(directory / "model") as staging:
    (staging / "inner").mkdir()
    (staging / "a").write_text("new")
    (staging / "inner" / "b").write_text("new")
"""


def kill(body: str, call: str, before: int, directory: Path) -> bool:
    """Whether the process was killed before it was through."""
    script = KILLED.replace("{body}", body)
    done = subprocess.run([sys.executable, "-c", script, call, str(before), str(directory)], cwd=ROOT, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace", "fdopen"])
def test_a_killed_writer_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    (tmp_path / "record.json").write_text("old")
    before = 0
    while kill(WRITE_FILE, call, before, tmp_path):
        found = (tmp_path / "record.json").read_text()
        assert found in ("old", "new" * 100_000)
        if before == 0:
            assert found == "old"
        before += 1
    assert before > 0
    assert (tmp_path / "record.json").read_text() == "new" * 100_000


@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_a_killed_writer_leaves_the_old_directory(tmp_path: Path, call: str) -> None:
    if call == "rename" and not can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two names")
    old, new = {"a": "old"}, {"a": "new", "inner/b": "new"}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("old")
    before = 0
    while kill(WRITE_DIRECTORY, call, before, tmp_path):
        assert content(tmp_path / "model") in (old, new)
        if before == 0 and call != "rename":  # the exchange is made before the first rename
            assert content(tmp_path / "model") == old
        before += 1
    assert before > 0
    assert content(tmp_path / "model") == new


@pytest.mark.parametrize(("call", "before"), [("fsync", 1), ("mkdir", 2), ("chmod", 1)])
def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path, call: str, before: int) -> None:
    with staged_directory(tmp_path / "model") as of_one_that_lives:
        assert kill(WRITE_DIRECTORY, call, before, tmp_path)
        assert len([*tmp_path.iterdir()]) >= 2
        with staged_directory(tmp_path / "model"):
            assert of_one_that_lives.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def can_exchange(directory: Path) -> bool:
    probe = (directory / "x", directory / "y")
    for path in probe:
        path.mkdir()
    able = files._exchange(*probe)
    for path in probe:
        path.rmdir()
    return able


def content(directory: Path) -> dict[str, str]:
    return {p.relative_to(directory).as_posix(): p.read_text() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow past 64 KiB: writing more fails as on a full disk, in the middle."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("old", [None, "old"])
def test_a_write_that_finds_no_room_leaves_nothing_of_itself(tmp_path: Path, old: str | None) -> None:
    target = tmp_path / "record.json"
    if old is not None:
        target.write_text(old)
    with pytest.raises(OSError):
        write_atomic(target, "x" * 1_000_000)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == ({} if old is None else {"record.json": old})


@pytest.mark.usefixtures("small_files")
def test_a_directory_that_finds_no_room_leaves_nothing_of_itself(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("old")
    with pytest.raises(OSError), staged_directory(tmp_path / "model") as staging:
        (staging / "first").write_text("new")
        (staging / "weights").write_bytes(b"x" * 1_000_000)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert content(tmp_path / "model") == {"a": "old"}


def no_exchange(*_: Path) -> bool:
    return False


@pytest.mark.parametrize("exchange", [None, no_exchange], ids=["exchange", "without"])
def test_an_interrupted_builder_leaves_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: Callable[..., bool] | None
) -> None:
    if exchange is not None:
        monkeypatch.setattr(files, "_exchange", exchange)
    with staged_directory(tmp_path / "model") as staging:
        (staging / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), staged_directory(tmp_path / "model") as staging:
        (staging / "a").write_text("new")
        raise KeyboardInterrupt
    assert content(tmp_path) == {"model/a": "old"}
    with staged_directory(tmp_path / "model") as staging:
        (staging / "a").write_text("new")
    assert content(tmp_path) == {"model/a": "new"}
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o755


def test_a_reader_never_finds_neither(tmp_path: Path) -> None:
    """A directory is replaced again and again while another thread reads it."""
    if not can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two names")
    final, stop, missed = tmp_path / "model", threading.Event(), 0
    final.mkdir()

    def read() -> None:
        nonlocal missed
        while not stop.is_set():
            missed += not os.path.exists(final)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        staging = tmp_path / f".{number}"
        staging.mkdir()
        replace_directory(staging, final)
    stop.set()
    reader.join()
    assert missed == 0


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b.json", {"b": 1, "a": [None, "é"]})
    assert (tmp_path / "a" / "b.json").stat().st_mode & 0o777 == 0o644
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == {"a": [None, "é"], "b": 1}


def test_a_tree_is_synced_while_others_write_and_take_away_in_it(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"stays-{n}").write_text("x")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            (tmp_path / "inner").mkdir()
            for n in range(10):
                (tmp_path / "inner" / str(n)).touch()
            shutil.rmtree(tmp_path / "inner")

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(100):
            sync_tree(tmp_path)
    finally:
        done.set()
        other.join()


def test_a_tree_that_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_tree(tmp_path / "none")
