"""Lock files: held (flock) by a process for as long as it lives, and read by others without taking them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take(path: str | Path) -> int | None:
    """The file, made where it is not there, as a descriptor that holds it; None where another process does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def sign(handle: int) -> None:
    """Say in the file that is held that this process holds it."""
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())


def signed(path: str | Path) -> str:
    """Which process the file was signed by; `?` where it was by none."""
    return Path(path).read_bytes().decode(errors="replace").strip() or "?"


def held(path: str | Path) -> bool:
    """Whether some process holds the file."""
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
