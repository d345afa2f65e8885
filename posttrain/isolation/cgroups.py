"""Limits on groups of processes: cgroups of v1, v2 or both at once, whichever this machine lets us make.

Invariants: a group has one name and a directory of that name in every hierarchy that it takes; a limit
is either enforced or named by `unavailable`; removing a group that has gone is no error.

A process that is moved into a group waits for every processor to have been through the scheduler (15 ms and more),
unless another was moved just before. A thread that moves itself by v1's `tasks` does not, nor a process that is born in
a group of v2 (kernel/cgroup/cgroup.c: `cgroup_attach_lock`, `cgroup_css_set_fork`): `join` and `fork` are these two.

Where no group can be made (no privilege, a read-only mount, v2 without the controller) limits are not
enforced, and a process killed for memory is not told from one killed by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD = 100_000  # microseconds over which a share of the cores is counted
_V1_LIMITS = {"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us", "pids": "pids.max"}
_V2_LIMITS = {"memory": "memory.max", "cpu": "cpu.max", "pids": "pids.max"}
_CLONE3, _CLONE_INTO_CGROUP = 435, 0x200000000
_libc = ctypes.PyDLL(None, use_errno=True)  # which keeps the interpreter's lock: a child finds it as it was


@dataclass(frozen=True)
class Hierarchy:
    """`parent` is the directory below which groups are made, `controllers` those of ours that it has."""

    parent: Path
    version: int
    controllers: frozenset[str]


@dataclass(frozen=True)
class Limits:
    """Bytes, cores, processes; None sets no limit. `together`: out of memory, all go at once (v2)."""

    memory: int | None = None
    cpu: float | None = None
    pids: int | None = None
    together: bool = False


class Group:
    """A group named `name` in the hierarchies that its limits take, and in one more where `calls` are told apart."""

    def __init__(self, name: str, limits: Limits, *, calls: bool = False):
        wanted = {c for c in CONTROLLERS if getattr(limits, c) is not None}
        tracking = _tracking() if calls else None
        self._paths = {h: h.parent / name for h in hierarchies() if h.controllers & wanted or h == tracking}
        self._tracking = self._paths.get(tracking) if tracking else None
        self._born: Path | None = None  # where this process was, if `fork` made it
        for hierarchy, path in self._paths.items():
            path.mkdir(exist_ok=True)
            for file, value in _settings(hierarchy, limits):
                with contextlib.suppress(FileNotFoundError):  # memsw is there only where swap is accounted
                    _write(path, file, value)

    @property
    def paths(self) -> list[Path]:
        return list(self._paths.values())

    def fork(self, call: str = "") -> int:
        """As os.fork, by a process with one thread; the child is yet to `join`, with the same `call`."""
        for hierarchy, path in self._paths.items():
            part = self._part(path, call)
            if hierarchy.version == 2 and (pid := _fork_into(part)) is not None:
                self._born = part if pid == 0 else None
                return pid
        return os.fork()

    def join(self, call: str = "") -> None:
        """Put the calling process, which has one thread, and what it will start, into the group, or into the part of
        it for `call`."""
        for hierarchy, path in self._paths.items():
            part = self._part(path, call)
            if part != self._born:
                _write(part, "tasks" if hierarchy.version == 1 else "cgroup.procs", "0")

    def _part(self, path: Path, call: str) -> Path:
        return path / call if call and path == self._tracking else path

    def open_call(self, call: str) -> bool:
        """Make the part of the group for `call`; False where the group cannot tell calls apart."""
        if self._tracking is None:
            return False
        (self._tracking / call).mkdir(exist_ok=True)
        return True

    def members(self, call: str) -> list[int]:
        if self._tracking is None:
            return []
        try:
            return [int(line) for line in (self._tracking / call / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def kill_call(self, call: str) -> None:
        """Kill every process of the call until none is left."""
        if self._tracking is None:
            return
        pause = 0.0  # of v1, where a pause would let a fork bomb get ahead
        with contextlib.suppress(OSError):
            _write(self._tracking / call, "cgroup.kill", "1")
            pause = 0.001
        until = time.monotonic() + 5
        while (pids := self.members(call)) and time.monotonic() < until:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(pause)

    def close_call(self, call: str) -> None:
        """Remove the call's part; its processes that go on belong to the group from now."""
        if self._tracking is None:
            return
        path = self._tracking / call
        for pid in self.members(call):
            with contextlib.suppress(OSError):
                _write(self._tracking, "cgroup.procs", str(pid))
        with contextlib.suppress(OSError):
            path.rmdir()

    def oom_kills(self) -> int:
        """How many processes of the group the kernel has killed for memory."""
        for hierarchy, path in self._paths.items():
            if "memory" in hierarchy.controllers:
                events = path / ("memory.events" if hierarchy.version == 2 else "memory.oom_control")
                return sum(int(n) for word, n in _pairs(events) if word == "oom_kill")
        return 0

    def remove(self) -> None:
        for path in self._paths.values():
            _remove(path)


def remove_all(prefix: str) -> None:
    """Remove the groups whose names begin with `prefix`: what a killed owner left."""
    for path in left(prefix):
        _remove(path)


def left(prefix: str) -> list[Path]:
    """The groups whose names begin with `prefix`."""
    return [path for hierarchy in hierarchies() for path in hierarchy.parent.glob(f"{prefix}*")]


def destroy(path: Path) -> None:
    """Kill what is in the group at `path`, as `left` names it, and in its parts, and remove it."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pids = []
        for file in path.glob("**/cgroup.procs"):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # another reaper was there first
                pids += [int(pid) for pid in file.read_text().split()]
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    _remove(path)


def unavailable(controllers: Iterable[str] = CONTROLLERS) -> str:
    """Which of the controllers cannot limit anything here, and why; "" where all can."""
    there = frozenset[str]().union(*(h.controllers for h in hierarchies()))
    lacking = [c for c in controllers if c not in there]
    if not lacking:
        return ""
    reason = f": {_reasons()[-1]}" if _reasons() else ""
    return f"no cgroup for {', '.join(lacking)}{reason}"


@cache
def hierarchies() -> tuple[Hierarchy, ...]:
    """Where groups can be made, found out by making one."""
    return _explore()[0]


def _reasons() -> tuple[str, ...]:
    return _explore()[1]


@cache
def _explore() -> tuple[tuple[Hierarchy, ...], tuple[str, ...]]:
    found: list[Hierarchy] = []
    reasons: list[str] = []
    for version, mount, own in _mounts():
        names = _V2_LIMITS if version == 2 else _V1_LIMITS
        for parent in [own, *own.parents]:
            if not parent.is_relative_to(mount):
                break
            trial = parent / f"posttrain-trial-{os.getpid()}"
            try:
                trial.mkdir()
                there = frozenset(name for name, file in names.items() if (trial / file).exists())
                trial.rmdir()
            except OSError as problem:
                reasons.append(f"{parent}: {problem.strerror}")
                continue
            taken = frozenset[str]().union(*(h.controllers for h in found))
            found.append(Hierarchy(parent, version, there - taken))
            if version == 2 and not there:
                reasons.append(f"{parent} passes on no controller")
            break
    return tuple(found), tuple(reasons)


def _tracking() -> Hierarchy | None:
    """The hierarchy in which calls are told apart: v2, which kills a group at once, else that of pids, else any."""
    ranked = sorted(hierarchies(), key=lambda h: (h.version != 2, "pids" not in h.controllers))
    return ranked[0] if ranked else None


def _settings(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    files: list[tuple[str, str]] = []
    if "memory" in hierarchy.controllers and limits.memory is not None:
        bytes_ = str(limits.memory)
        if hierarchy.version == 2:
            files += [("memory.max", bytes_), ("memory.swap.max", "0")]
        else:
            files += [("memory.limit_in_bytes", bytes_), ("memory.memsw.limit_in_bytes", bytes_)]
        if limits.together:
            files.append(("memory.oom.group", "1"))
    if "cpu" in hierarchy.controllers and limits.cpu is not None:
        quota = max(1000, round(limits.cpu * _PERIOD))
        if hierarchy.version == 2:
            files.append(("cpu.max", f"{quota} {_PERIOD}"))
        else:
            files += [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    if "pids" in hierarchy.controllers and limits.pids is not None:
        files.append(("pids.max", str(limits.pids)))
    return files


def _fork_into(path: Path) -> int | None:
    """Fork a child that is born in the group at `path`, of v2; None where that cannot be (before Linux 5.7, and where
    clone3 is refused)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    arguments = struct.pack("11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, handle)
    pid = int(_libc.syscall(_CLONE3, arguments, len(arguments)))
    os.close(handle)
    return pid if pid >= 0 else None


def _write(path: Path, file: str, text: str) -> None:
    handle = os.open(path / file, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _pairs(file: Path) -> list[tuple[str, str]]:
    try:
        return [(word, number) for word, number in (line.split() for line in file.read_text().splitlines())]
    except OSError:
        return []


def _remove(path: Path) -> None:
    for attempt in range(100):
        try:
            for part in os.scandir(path) if attempt else ():
                if part.is_dir(follow_symlinks=False):
                    os.rmdir(part)
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            if attempt:
                time.sleep(0.005)  # the last process is on its way out


def _mounts() -> list[tuple[int, Path, Path]]:
    """Version, mount point, this process's own group below it: one of v1 for each of our controllers, and v2's."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own["v2" if controllers == "" else controllers] = path
    found: list[tuple[int, Path, Path]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, mount = fields.split()[3], Path(fields.split()[4])
        if kind == "cgroup" and set(CONTROLLERS) & set(options.split(",")):
            names = set(CONTROLLERS) & set(options.split(","))
            path = next((p for key, p in own.items() if names & set(key.split(","))), "/")
            found.append((1, mount, mount / os.path.relpath(path, root)))
        elif kind == "cgroup2":
            found.append((2, mount, mount / os.path.relpath(own.get("v2", "/"), root)))
    return sorted(found, key=lambda each: each[0])
