"""Paths of this machine for a process without privileges, when the launcher is root.

Root starts bubblewrap as a user that has nothing; a root or an environment may lie below a directory that only
root may enter. Such a path is bound, in a mount namespace of the launcher's own, below a directory that
everyone may enter. The host sees none of these mounts, and they end with the launcher.
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

PLACE = "/run/posttrain-sandbox"  # an empty directory on the host

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19


class Sources:
    """Of one launcher; changes the mount namespace of the calling process where it is root."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, str]] = {}
        self._privileged = os.geteuid() == 0
        if self._privileged:
            os.makedirs(PLACE, mode=0o755, exist_ok=True)
            if _libc.unshare(_CLONE_NEWNS) < 0:
                _fail("unshare")
            _mount(None, "/", None, _MS_REC | _MS_SLAVE)
            _mount("tmpfs", PLACE, "tmpfs", _MS_NOSUID | _MS_NODEV)
            os.chmod(PLACE, 0o755)

    def reach(self, path: str) -> str:
        """`path`, or where the same can be reached by everyone. OSError where it is not there."""
        found = os.stat(path)
        device, inode, place = self._known.get(path, (0, 0, ""))
        if (device, inode) != (found.st_dev, found.st_ino):
            place = self._way_to(path, found)
            self._known[path] = (found.st_dev, found.st_ino, place)
        return place

    def _way_to(self, path: str, found: os.stat_result) -> str:
        if not self._privileged or _open_to_all(path):
            return path
        place = f"{PLACE}/{len(os.listdir(PLACE))}"
        os.mkdir(place) if stat.S_ISDIR(found.st_mode) else Path(place).touch()
        _mount(path, place, None, _MS_BIND | _MS_REC)
        return place


def _open_to_all(path: str) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(path).parents)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    if _libc.mount(*texts, ctypes.c_ulong(flags), None) < 0:
        _fail(target)


def _fail(path: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)
