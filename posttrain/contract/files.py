"""Writing files so that a reader, or a crash, never sees half of one.

Invariant: nothing stands under its final name before it is whole and on disk. Files are
written beside, synced and renamed; directories are built under a staging name and renamed.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from posttrain.contract.locks import locked


def write_atomic(path: Path, data: str | bytes) -> None:
    """Replace `path` by `data`. Raises OSError (a full disk, say) with nothing left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    handle, staging = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(staging, 0o644)
        os.replace(staging, path)
    except BaseException:
        Path(staging).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of `value` as indented JSON with sorted keys."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


@contextmanager
def staged_directory(final: Path) -> Iterator[Path]:
    """Yield an empty directory that becomes `final` on leaving, replacing what stood there.

    On an exception it is removed and `final` is as it was.
    """
    with beside(final) as staging:
        yield staging
        for path in [staging, *staging.rglob("*")]:  # some libraries write for their own user only
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        sync_tree(staging)
        replace_directory(staging, final)


@contextmanager
def beside(final: Path) -> Iterator[Path]:
    """Yield an empty directory beside `final` to build it in; on leaving, what is still under that name is removed.

    It is locked while its process lives. What processes that were killed left for the same `final`, nobody
    holds: the next one removes it.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{final.name}.tmp-"
    with ExitStack() as mine:
        with locked(final.parent):  # so that none is taken for a dead one before it is locked
            for left in final.parent.glob(f"{glob.escape(prefix)}*"):
                with suppress(OSError), locked(left, wait=False):
                    shutil.rmtree(left, ignore_errors=True)
            staging = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
            mine.enter_context(locked(staging))
            mine.callback(shutil.rmtree, staging, ignore_errors=True)
        yield staging


def replace_directory(staging: Path, final: Path) -> None:
    """Rename `staging` to `final`; an older `final` is removed. No reader, and no crash, finds neither of them.

    Where the file system cannot exchange two names, there is a moment without `final`.
    """
    if not final.exists():
        os.rename(staging, final)
        sync_directory(final.parent)
        return
    with beside(final) as old:
        if _exchange(staging, final):
            os.rename(staging, old / "was")
        else:
            os.rename(final, old / "was")
            try:
                os.rename(staging, final)
            except OSError:
                os.rename(old / "was", final)
                raise
        sync_directory(final.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once (renameat2); False where the kernel or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextmanager
def os_errors(path: Path | str) -> Iterator[None]:
    """Inside, a native library's error that ends in `(os error 28)` becomes that OSError, with its errno."""
    try:
        yield
    except Exception as problem:
        told = re.search(r"\(os error (\d+)\)", str(problem))
        if told is None or getattr(problem, "errno", None):
            raise
        raise OSError(int(told[1]), os.strerror(int(told[1])), str(path)) from problem


def sync_tree(root: Path) -> None:
    """Make every file and name below `root` durable, but for what another writer takes away meanwhile."""
    _sync(root)
    for directory, _, files in os.walk(root):
        for name in [".", *files]:
            with suppress(FileNotFoundError):
                _sync(Path(directory, name))


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
