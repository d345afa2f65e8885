"""Processes by their pid, without mistaking one for another: start, signals, the tree below."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MARKER = "POSTTRAIN_POD"  # in the environment of every process of a pod: the pod's directory
_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def send(pid: int, number: signal.Signals, *, group: bool = False) -> None:
    """Signal a process, or the whole group that it is in; nothing happens where it has gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(os.getpgid(pid), number) if group else os.kill(pid, number)


def send_exactly(pid: int, started: int, number: signal.Signals) -> None:
    """Signal the process only if it is the one that started then, not a later one of the same pid."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def marked(value: str, pids: Iterable[int] | None = None) -> Iterator[int]:
    """The processes whose environment carries the pod's marker with `value` or something below it."""
    exact, below = f"\0{MARKER}={value}\0".encode(), f"\0{MARKER}={value}/".encode()
    for pid in pids if pids is not None else (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # gone, or another user's
        if pid != os.getpid() and (exact in environment or below in environment):
            yield pid


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def session_of(pid: int) -> int:
    """The session that the process is in; 0 where it has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def sweep_below(pid: int, value: str) -> None:
    """Kill every marked descendant of `pid` until none is left."""
    while found := list(marked(value, descendants(pid))):
        for each in found:
            send(each, signal.SIGKILL)
        time.sleep(0.001)


def sweep(value: str, *, seconds: float = 5.0) -> None:
    """Kill every marked process of the machine until none is left; gives up on one that cannot be killed."""
    until = time.monotonic() + seconds
    while (found := list(marked(value))) and time.monotonic() < until:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.002)


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names one process only."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def lives(pid: int, started: int) -> bool:
    """Whether the process that started then still runs; one that has ended and is not yet reaped does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and int(fields[19]) == started


def adopt_orphans() -> None:
    """Processes below this one that lose their parent come to it, not to init."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def offered_to_the_oom_killer() -> Iterator[None]:
    """What is started within is taken before this process when memory runs out."""
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()
    own.write_text("500")
    try:
        yield
    finally:
        own.write_text(before)
