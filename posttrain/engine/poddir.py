"""A pod's directory: its files, its lock and the engine's bell. Used by the engine and by supervisors.

    pod.json status.json logs/NAME      see podspec.py
    lock                                held by the supervisor; says which process that is, and is filled up to a
                                        size that makes room for the last status on a disk that has become full
    stop                                an order to stop the pod
    root/NAME volumes/NAME              files of the containers and of the pod's own volumes, until it has ended

Every change of a status rings the bell, a FIFO beside the pods' directories: the supervisor writes
the pod's id into it, and the engine sleeps until one comes. Nobody listening is no error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from posttrain.contract import locks
from posttrain.engine.podspec import PodStatus
from posttrain.errors import UserError
from posttrain.isolation import processes

BELL = ".bell"
_CLAIM_BYTES = 64
_RESERVE_BYTES = 1 << 16


class PodDirectory:
    def __init__(self, path: str):
        self.path = path

    def status(self) -> PodStatus:
        """As it was last written; Pending where it never was."""
        try:
            with open(f"{self.path}/status.json", encoding="utf-8") as source:
                return PodStatus(**json.load(source))
        except FileNotFoundError:
            return PodStatus()
        except (ValueError, TypeError):
            raise self._damaged("status.json") from None

    def write_status(self, status: PodStatus, id: str) -> None:
        """Replace the status and ring the bell. On a full disk the reserve is given up for it."""
        text = json.dumps(asdict(status)).encode()
        try:
            self._replace("status.json", text)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            os.truncate(f"{self.path}/lock", _CLAIM_BYTES)
            self._replace("status.json", text)
        ring(os.path.dirname(self.path), id)

    def claim(self, lock: int) -> None:
        """Say, in the lock that this process holds, which process the supervisor is."""
        os.pwrite(lock, f"{os.getpid()} {processes.start_time(os.getpid())}\n".encode(), 0)

    def supervisor(self) -> tuple[int, int] | None:
        """The supervisor's pid and start time, once it has claimed the pod."""
        with open(f"{self.path}/lock", "rb") as source:
            line, newline, _ = source.read(_CLAIM_BYTES).partition(b"\n")
        if not newline:
            return None
        try:
            pid, started = map(int, line.split())
        except ValueError:
            raise self._damaged("lock") from None
        return pid, started

    def request_stop(self, grace: float) -> None:
        self._replace("stop", str(grace).encode())

    def stop_requested(self) -> float | None:
        """The seconds of grace that the last request to stop gave; None where there was none."""
        try:
            return float(Path(f"{self.path}/stop").read_text())
        except FileNotFoundError:
            return None

    def lock(self) -> int | None:
        """The pod's lock as a descriptor that holds it, or None where another process does."""
        return locks.take(f"{self.path}/lock")

    def reserve(self, lock: int) -> None:
        """Fill up the lock, so that a full disk is met before the pod runs."""
        os.pwrite(lock, bytes(_RESERVE_BYTES), 0)

    def held(self) -> bool:
        """Whether a supervisor sees to the pod."""
        return locks.held(f"{self.path}/lock")

    def full_disk(self) -> str:
        """A word on the disk where it is full, else nothing."""
        space = os.statvfs(self.path)
        full = space.f_bavail * space.f_frsize < 1 << 16
        return f"no space is left on the disk of {self.path}" if full else ""

    def clear(self) -> None:
        """Remove what belonged to the containers alone: their files, emptyDirs, projected secrets."""
        for part in ("root", "volumes"):
            shutil.rmtree(f"{self.path}/{part}", ignore_errors=True)

    def note(self, text: str) -> None:
        """Keep what a defect of ours left behind."""
        with contextlib.suppress(OSError), open(f"{self.path}/supervisor.log", "a", encoding="utf-8") as out:
            out.write(text)

    def _damaged(self, name: str) -> UserError:
        remedy = f"put back a copy of it, or delete {self.path} to have the step run again"
        return UserError("is damaged", field=f"{self.path}/{name}", remedy=remedy)

    def _replace(self, name: str, data: bytes) -> None:
        beside = f"{self.path}/.{name}.{os.getpid()}"
        try:
            with open(beside, "wb") as out:
                out.write(data)
            os.replace(beside, f"{self.path}/{name}")
        except OSError:
            Path(beside).unlink(missing_ok=True)
            raise


def ring(pods: str | Path, word: str) -> None:
    """Wake the engine that listens at the directory of pods, if any; waits where thousands of words are unread."""
    try:
        bell = os.open(f"{pods}/{BELL}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # no engine: the next one reads every status anyway
    try:
        os.set_blocking(bell, True)
        with contextlib.suppress(BrokenPipeError):
            os.write(bell, word.encode() + b"\n")
    finally:
        os.close(bell)
