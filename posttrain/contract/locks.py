"""Locks between the processes of one machine (flock). Whoever dies gives theirs back."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """Inside, this process holds `directory`. BlockingIOError where another does and it is not to wait."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as problem:
            if not wait or problem.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise  # where a file system has no locks, nothing is held, and nothing is found to be left
        yield
    finally:
        os.close(handle)


def take(path: str | Path) -> int | None:
    """The file, made where it is not there, as a descriptor that holds it until it is closed; None where another
    process does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if taken_within(handle, 0.0, every=0.0):
        return handle
    os.close(handle)
    return None


def sign(handle: int) -> None:
    """Say in the file that is held that this process holds it."""
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())


def signed(path: str | Path) -> str:
    """Which process the file was signed by; `?` where it was by none."""
    return Path(path).read_bytes().decode(errors="replace").strip() or "?"


def held(path: str | Path) -> bool:
    """Whether some process holds the file. It is not taken for that."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def taken_within(handle: int, seconds: float, *, every: float) -> bool:
    """Whether the open file `handle` has the lock of its file within `seconds`; it asks every so many, once at least.

    The lock is kept until the file is closed.
    """
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends:
                return False
            time.sleep(every)
