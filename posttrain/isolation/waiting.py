"""The end of a process as a future, without a thread or a signal's handler."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable


def exit_of(process: subprocess.Popen) -> asyncio.Future[int]:
    """Resolves to the exit code (128 + signal for one that was killed)."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def reap() -> None:
        code = process.wait()
        if not ended.done():
            ended.set_result(code if code >= 0 else 128 - code)

    _when_ended(process.pid, reap)
    return ended


async def adopted_has_ended(pid: int) -> None:
    """Wait for a process that has come to this one from a parent that has gone; it may have gone itself (or be 0)."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _when_ended(pid, lambda: ended.set_result(None))
    await ended
    os.waitpid(pid, 0)


def _when_ended(pid: int, act: Callable[[], None]) -> None:
    """Call `act` once the child has ended."""
    loop, handle = asyncio.get_running_loop(), os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        act()

    loop.add_reader(handle, ended)
