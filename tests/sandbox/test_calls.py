"""Calls: streams, ends, environment, users, roots; files in and out; snapshots and clones."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.sandbox import Outcome, SandboxGone, Snapshot
from posttrain.sandbox.local import overlay_refused
from tests.sandbox.conftest import Boxes


def test_output_streams_as_it_comes(boxes: Boxes) -> None:
    async def work() -> tuple[list[tuple[str, bytes, float]], bytes]:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            begun, seen = time.monotonic(), []
            script = "echo one; sleep 0.3; echo two >&2; sleep 0.3; cat"
            result = await sandbox.exec(
                ["sh", "-c", script],
                stdin=b"three" * 50_000,
                on_output=lambda stream, piece: seen.append((stream, piece, time.monotonic() - begun)),
            )
            return seen, result.stdout

    seen, kept = boxes.run(work())
    assert [stream for stream, *_ in seen[:3]] == ["stdout", "stderr", "stdout"]
    assert seen[2][2] - seen[0][2] > 0.4
    assert kept == b"one\n" + b"three" * 50_000 == b"".join(piece for stream, piece, _ in seen if stream == "stdout")


def test_a_spawned_command_is_written_to_and_read_from(boxes: Boxes) -> None:
    async def work() -> tuple[list[bytes], Outcome]:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            process = await sandbox.spawn(["cat"])
            await process.write(b"x" * 300_000)
            pieces = []
            async for _, piece in process.output():
                pieces.append(piece)
                if sum(map(len, pieces)) == 300_000:
                    await process.close_stdin()
            return pieces, (await process.wait()).outcome

    pieces, outcome = boxes.run(work())
    assert b"".join(pieces) == b"x" * 300_000 and outcome is Outcome.succeeded


@pytest.mark.parametrize(
    ("command", "outcome", "code"),
    [
        (["true"], Outcome.succeeded, 0),
        (["sh", "-c", "exit 7"], Outcome.failed, 7),
        (["sh", "-c", "kill -SEGV $$"], Outcome.failed, 139),
        (["sh", "-c", "kill -KILL $$"], Outcome.failed, 137),
        (["no-such-program"], Outcome.failed, 127),
        (["/etc"], Outcome.failed, 126),
    ],
)
def test_how_a_command_ends(boxes: Boxes, command: list[str], outcome: Outcome, code: int) -> None:
    result = boxes.exec(command)
    assert (result.outcome, result.code) == (outcome, code)
    assert bool(result.detail) == (outcome is not Outcome.succeeded)


def test_a_call_has_the_variables_and_the_directory_that_it_is_given(boxes: Boxes) -> None:
    async def work() -> str:
        spec = boxes.spec(environment={"A": "spec", "B": "spec"}, workdir="/data/here", user=0)
        async with boxes.driver.sandbox(spec) as sandbox:
            first = await sandbox.exec(["sh", "-c", "echo $A $B; pwd; id -u; touch x"], environment={"B": "call"})
            return first.text + (await sandbox.exec(["ls"], workdir="/data")).text

    assert boxes.run(work()) == "spec call\n/data/here\n0\nhere\n"


def test_a_command_finds_signals_as_a_fresh_program_does(boxes: Boxes) -> None:
    told = dict(line.split(":\t") for line in boxes.exec(["cat", "/proc/self/status"]).text.splitlines())
    ours = (1 << 31) - 1  # those from 32 on are libc's own, blocked in some threads that start a process
    assert {int(told[kind], 16) & ours for kind in ("SigIgn", "SigBlk", "SigCgt")} == {0}


def test_calls_run_beside_each_other_and_see_the_same(boxes: Boxes) -> None:
    async def work() -> float:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            begun = time.monotonic()
            wait = "until [ -e /tmp/go ]; do sleep 0.02; done"
            waiting = [asyncio.create_task(sandbox.exec(["sh", "-c", wait], timeout=20)) for _ in range(5)]
            await sandbox.write_file("/tmp/go", b"")
            assert {(await each).outcome for each in waiting} == {Outcome.succeeded}
            return time.monotonic() - begun

    assert boxes.run(work()) < 15


def test_files_go_in_and_come_out_as_they_are(boxes: Boxes, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/data.bin").write_bytes(bytes(range(256)) * 1000)
    (source / "run.sh").write_text("#!/bin/sh\necho ran > out.txt\n")
    (source / "run.sh").chmod(0o755)
    (source / "outside").symlink_to("/etc/hostname")

    async def work() -> tuple[list[str], bytes, bytes]:
        spec = boxes.spec(files={"src": str(source), "one.txt": str(source / "run.sh")}, collect=["src/deep", "*.txt"])
        async with boxes.driver.sandbox(spec) as sandbox:
            assert (await sandbox.exec(["./src/run.sh"])).outcome is Outcome.succeeded
            assert (await sandbox.exec(["readlink", "src/outside"])).text == "/etc/hostname\n"  # the link, not the file
            await sandbox.write_file("a/b/c", b"new", mode=0o600)
            names = await sandbox.collect(tmp_path / "out")
            return names, await sandbox.read_file("a/b/c"), await sandbox.read_file("/workspace/one.txt")

    names, new, one = boxes.run(work())
    assert sorted(names) == ["one.txt", "out.txt", "src/deep/er/data.bin"]
    assert (tmp_path / "out/src/deep/er/data.bin").read_bytes() == bytes(range(256)) * 1000
    assert new == b"new" and one.startswith(b"#!")


def test_what_cannot_be_read_or_written_is_an_error_as_of_files(boxes: Boxes, tmp_path: Path) -> None:
    async def work() -> None:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            with pytest.raises(FileNotFoundError):
                await sandbox.read_file("nothing")
            with pytest.raises(OSError, match="Read-only"):
                await sandbox.write_file("/usr/x", b"")
            await sandbox.write_file("big", b"x" * 1000)
            with pytest.raises(UserError, match="more than 999"):
                await sandbox.read_file("big", limit=999)
            with pytest.raises(UserError, match="more than 999"):
                await sandbox.collect(tmp_path / "out", ["*"], limit=999)
            with pytest.raises(OSError, match="No space"):
                await sandbox.write_file("huge", bytes(33 << 20))
            assert (await sandbox.exec(["ls", "-a"])).text.split() == [".", "..", "big"]  # nothing half written

    boxes.run(work())


def test_a_snapshot_is_laid_over_another_workspace(boxes: Boxes, tmp_path: Path) -> None:
    async def work() -> tuple[str, str]:
        async with boxes.driver.sandbox(boxes.spec()) as one:
            await one.exec(["sh", "-c", "mkdir -p d; echo 1 > d/f; ln -s d/f l; ln -s /usr/bin/env abs; chmod 750 d"])
            snapshot = await one.snapshot(tmp_path / "snapshot.tar")
            other = await one.clone()
            await one.exec(["sh", "-c", "echo changed > d/f"])
            cloned = (await other.exec(["cat", "l"])).text
            await other.stop()
        async with boxes.driver.sandbox(boxes.spec()) as third:
            await third.restore(snapshot)
            return cloned, (await third.exec(["sh", "-c", "cat l; readlink abs; stat -c %a d; whoami"])).text

    assert boxes.run(work()) == ("1\n", "1\n/usr/bin/env\n750\nsandbox\n")


def test_a_snapshot_that_was_changed_is_refused(boxes: Boxes, tmp_path: Path) -> None:
    async def work() -> None:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            snapshot = await sandbox.snapshot(tmp_path / "s.tar")
            snapshot.path.write_bytes(snapshot.path.read_bytes() + b"x")
            with pytest.raises(UserError, match=r"s\.tar"):
                await sandbox.restore(snapshot)

    boxes.run(work())


def test_a_tar_that_climbs_out_reaches_nothing(boxes: Boxes, tmp_path: Path) -> None:
    """Files in: names with .., absolute names, and links of both kinds that are then written through."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for members in (
        ["../../escaped"],
        [str(victim)],
        [("up", "../../..", tarfile.SYMTYPE), "up/escaped"],
        [("to", str(tmp_path), tarfile.SYMTYPE), "to/victim"],
        [("same", str(victim), tarfile.LNKTYPE), "same"],
        [("same", f"../../../..{victim}", tarfile.LNKTYPE), "same"],
    ):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for member in members:
                info = tarfile.TarInfo(member if isinstance(member, str) else member[0])
                if isinstance(member, tuple):
                    _, info.linkname, info.type = member
                    archive.addfile(info)
                else:
                    info.size = 3
                    archive.addfile(info, io.BytesIO(b"bad"))
        path = tmp_path / "bad.tar"
        path.write_bytes(packed.getvalue())

        async def work(path: Path = path) -> None:
            async with boxes.driver.sandbox(boxes.spec()) as sandbox:
                snapshot = Snapshot(path, hashlib.sha256(path.read_bytes()).hexdigest())
                with contextlib.suppress(OSError, UserError):
                    await sandbox.restore(snapshot)
                assert (await sandbox.exec(["true"])).outcome is Outcome.succeeded

        boxes.run(work())
        assert victim.read_text() == "untouched" and not Path("/escaped").exists()


@pytest.mark.parametrize("overlay", [True, False])
def test_a_root_of_its_own_is_written_to_without_being_changed(
    boxes: Boxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlay: bool
) -> None:
    if overlay and overlay_refused():
        pytest.skip(overlay_refused())
    monkeypatch.setattr("posttrain.sandbox.local.overlay_refused", lambda: "" if overlay else "as the test has it")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = _small_root(tmp_path)

    async def work() -> tuple[str, str]:
        async with boxes.driver.sandbox(boxes.spec(root=str(root))) as sandbox:
            script = "cat /etc/motd; echo new > /etc/motd && echo more > /etc/more; cat /etc/motd; ls /"
            first = await sandbox.exec(["/bin/sh", "-c", script])
            second = await sandbox.exec(["/bin/sh", "-c", "cat /etc/more"])
            return first.text, second.text

    first, second = boxes.run(work())
    assert first.startswith("old\nnew\n") and "usr" not in first and second == "more\n"
    assert (root / "etc/motd").read_text() == "old\n" and not (root / "etc/more").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["root"]  # a copy has gone


def test_a_root_that_cannot_be_copied_is_told(boxes: Boxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.sandbox.local.overlay_refused", lambda: "as the test has it")
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(UserError, match="root: cannot be copied"):
        boxes.exec(["true"], root=str(tmp_path))


def _small_root(tmp_path: Path) -> Path:
    """A root with a shell: the machine's busybox where it is static, else its sh with what that needs."""
    root = tmp_path / "root"
    for name in ("bin", "etc", "proc", "dev", "tmp", "workspace", "lib", "lib64"):
        (root / name).mkdir(parents=True)
    (root / "etc/motd").write_text("old\n")
    for program in ("sh", "cat", "ls"):
        found = shutil.which(program)
        assert found
        shutil.copy(os.path.realpath(found), root / "bin" / program)
        for word in subprocess.run(["ldd", found], capture_output=True, text=True).stdout.split():
            if word.startswith("/"):
                target = root / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.path.realpath(word), target)
    for path in (root, *root.rglob("*")):
        if not path.is_symlink() and os.geteuid() == 0:
            os.chown(path, 64999, 64999)  # as root starts sandboxes
    return root


def test_a_mount_is_seen_and_cannot_be_written(boxes: Boxes, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    (data / "x").write_text("seen")
    result = boxes.sh("cat /data/x; echo no > /data/x", mounts={"/data": str(data)})
    assert result.text == "seen" and result.outcome is Outcome.failed and (data / "x").read_text() == "seen"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"root": "/no/such"}, "root: no such directory"),
        ({"mounts": {"/data": "/no/such"}}, "mounts: no such directory"),
        ({"files": {"x": "/no/such"}}, "files: no such file"),
    ],
)
def test_what_is_not_there_is_named(boxes: Boxes, fields: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        boxes.exec(["true"], **fields)


def test_a_root_without_a_shell_is_told(boxes: Boxes, tmp_path: Path) -> None:
    for name in ("proc", "dev", "tmp", "workspace"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    with pytest.raises(SandboxGone, match="/bin/sh"):
        boxes.exec(["true"], root=str(tmp_path / "empty"))


def test_the_share_of_the_cores_is_kept(boxes: Boxes) -> None:
    code = "import time, os\nend = time.time() + 1\nwhile time.time() < end: pass\nprint(sum(os.times()[:2]))"
    assert float(boxes.python(code, cpu=0.2).text) < 0.5
