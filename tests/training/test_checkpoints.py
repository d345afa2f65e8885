"""Checkpoints: whole or not there, trusted by digest, the same bytes' worth whoever saved them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
import torch

from posttrain.errors import UserError
from posttrain.training.checkpoints import CheckpointStore, content_digest, load, read, verify
from posttrain.training.config import Checkpoints
from tests.training.support import ROOT

ON_TMPFS = os.geteuid() == 0 and sys.platform == "linux"


def tensors(value: float = 1.0) -> dict:
    return {
        "weights": {"a": torch.full((50, 40), value), "b": torch.arange(3)},
        "optimizer": {"a": {"step": torch.tensor(value), "exp_avg": torch.full((50, 40), -value)}},
    }


def store(directory, request: str = "request", **config) -> CheckpointStore:
    return CheckpointStore(directory, Checkpoints(**config), request=request)


def save(kept: CheckpointStore, *updates: int, **state) -> None:
    for update in updates:
        kept.save(update, tensors(float(update)), {"update": update} | state)
    kept.wait()


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_loaded_is_what_was_saved_though_training_went_on(tmp_path):
    kept, live = store(tmp_path), tensors(2.0)
    kept.save(7, live, {"update": 7, "losses": [0.1, 1 / 3]})
    live["weights"]["a"].fill_(99)
    kept.wait()
    saved = store(tmp_path).newest()
    blank = tensors(0.0)
    load(saved, blank)
    assert content_digest(blank, {}) == content_digest(tensors(2.0), {})
    assert saved.state == {"update": 7, "losses": [0.1, 1 / 3]}
    assert (tmp_path / "latest").read_text() == "step-000007\n"


def test_the_digest_is_of_the_content_alone(tmp_path):
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    save(store(one), 3)
    save(store(two, request="another request"), 3)
    save(store(other), 3, more=1)
    digests = [read(path / "step-000003").digest for path in (one, two, other)]
    assert digests[0] == digests[1] != digests[2]
    assert content_digest(tensors(1.0), {}) != content_digest(tensors(1.0 + 2**-23), {})


def test_the_last_ones_those_for_good_and_the_protected_one_are_kept(tmp_path):
    kept = store(tmp_path, keep_last=2, keep_every=40)
    kept.protected = {50}
    save(kept, *range(10, 101, 10))
    assert names(tmp_path) == ["latest", "step-000040", "step-000050", "step-000080", "step-000090", "step-000100"]


@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "manifest.json"])
def test_a_damaged_one_is_named_and_passed_over(tmp_path, caplog, file):
    save(store(tmp_path), 1, 2)
    path = tmp_path / "step-000002" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    path.write_bytes(raw)
    assert store(tmp_path).newest().update == 1
    assert "step-000002" in caplog.text


def test_no_bit_of_a_manifest_changes_unseen(tmp_path):
    save(store(tmp_path), 2)
    path = tmp_path / "step-000002" / "manifest.json"
    whole, before = path.read_bytes(), read(tmp_path / "step-000002")
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert read(tmp_path / "step-000002") == before
            except UserError as problem:
                assert "step-000002" in str(problem)
    for other in (b"", b"null", b"[]", b'"text"', b"{}", whole[:-20]):
        path.write_bytes(other)
        with pytest.raises(UserError, match="step-000002: has no manifest that can be read"):
            read(tmp_path / "step-000002")


def test_one_with_a_file_gone_is_damaged(tmp_path):
    save(store(tmp_path), 1)
    (tmp_path / "step-000001" / "__0_0.distcp").unlink()
    with pytest.raises(UserError, match=r"step-000001: is damaged: __0_0\.distcp is missing"):
        verify(read(tmp_path / "step-000001"))
    assert store(tmp_path).newest() is None


def test_another_request_is_not_resumed_and_makes_room(tmp_path, caplog):
    save(store(tmp_path, request="old"), 5, 10)
    kept = store(tmp_path, request="new")
    assert kept.newest() is None and "another configuration" in caplog.text
    assert names(tmp_path) == ["latest", "step-000005", "step-000010"]
    save(kept, 1)
    assert names(tmp_path) == ["latest", "step-000001"]


def test_what_a_killed_save_left_is_removed_and_never_taken(tmp_path):
    save(store(tmp_path), 1)
    unfinished = tmp_path / ".step-000002.abc"
    unfinished.mkdir()
    (unfinished / "__0_0.distcp").write_bytes(b"half")
    assert store(tmp_path).newest().update == 1
    assert names(tmp_path) == ["latest", "step-000001"]


FULL_DISK = """
import sys, torch
from pathlib import Path
from posttrain.training.checkpoints import CheckpointStore
from posttrain.training.config import Checkpoints
store = CheckpointStore(Path(sys.argv[1]), Checkpoints(), request="r")
store.save(1, {"weights": {"a": torch.ones(200_000)}}, {"update": 1})
store.wait()
store.save(2, {"weights": {"a": torch.ones(2_000_000)}}, {"update": 2})
try:
    store.wait()
except OSError as problem:
    print(problem.errno, problem.filename)
"""


@pytest.mark.skipif(not ON_TMPFS, reason="mounting a small file system needs root")
def test_a_full_disk_leaves_the_older_one_and_says_so(tmp_path):
    script = 'mount -t tmpfs -o size=4m none "$1" && "$2" -c "$3" "$1" && ls -A "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL_DISK],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, *left = done.stdout.splitlines()
    assert said == f"{errno.ENOSPC} {tmp_path}/step-000002"
    assert left == ["latest", "step-000001"]


def test_the_manifest_says_what_is_in_the_directory(tmp_path):
    save(store(tmp_path), 4)
    manifest = json.loads((tmp_path / "step-000004" / "manifest.json").read_text())
    assert set(manifest["files"]) == {"__0_0.distcp", ".metadata"}
    assert manifest["update"] == 4 and manifest["digest"].startswith("sha256:")
