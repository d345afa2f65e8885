"""Trees of files between this machine and a sandbox, as tar files. What a sandbox has made is never trusted."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from posttrain.errors import UserError
from posttrain.isolation.launcher import inside

TREE_BYTES = 1 << 40  # a snapshot is bounded by the disk of its sandbox


def unpack_regular(
    packed: bytes, target: Path, limit: int, wanted: Callable[[str], bool] = lambda name: True
) -> list[str]:
    """Regular files of a tar that a sandbox has made, below `target`: no link, no way out, no more than `limit`."""
    names, left = [], limit
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r|") as archive:
        for member in archive:
            member.name = member.name.removeprefix("./")
            if not member.isreg() or not wanted(member.name):
                continue
            left -= member.size
            if left < 0:
                raise UserError(f"holds more than {limit} bytes", field="collect", remedy="take less out")
            try:
                archive.extract(member, target, filter="data")
            except tarfile.FilterError as problem:
                raise UserError(f"leads out of the directory: {problem}", field="collect", value=member.name) from None
            names.append(member.name)
    return names


async def copy_root(root: str, place: str) -> None:
    """Copy a root directory, sharing blocks where the file system can. Raises UserError where that cannot be."""
    command = ["cp", "-a", "--reflink=auto", "--", root, place]
    copying = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    try:
        _, stderr = await copying.communicate()
    except asyncio.CancelledError:
        copying.kill()
        await copying.wait()
        raise
    if copying.returncode != 0:
        said = (stderr.decode(errors="replace").strip().splitlines() or ["cp failed"])[-1]
        raise UserError(f"cannot be copied: {said}", field="root", value=root)


def packed(source: Path) -> bytes:
    buffer = io.BytesIO()
    inside.pack(str(source), buffer, patterns=None, links=True, limit=TREE_BYTES)
    return buffer.getvalue()
