"""Memory limits of containers: a cgroup of v1 or v2, whichever this machine lets us make.

Where none can be made (no privilege, a read-only mount, v2 without the controller) a limit is not
enforced and a process killed for memory is not told from one killed by hand: `unavailable` says why.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class _Hierarchy:
    """The directory below which groups are made, and the names of v1's or v2's files."""

    parent: Path
    limits: tuple[str, ...]
    events: str


_TOGETHER = "memory.oom.group"  # the container goes as a whole
_Files = tuple[tuple[str, ...], str]  # of limits, of events
_V1: _Files = (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), "memory.oom_control")
_V2: _Files = (("memory.max",), "memory.events")


class MemoryGroup:
    """The cgroup of one container."""

    def __init__(self, hierarchy: _Hierarchy, name: str, limit: int):
        self._hierarchy = hierarchy
        self.path = hierarchy.parent / name
        self.path.mkdir(exist_ok=True)
        for file, value in [*((file, str(limit)) for file in hierarchy.limits), (_TOGETHER, "1")]:
            if (self.path / file).exists():  # memsw only where swap is accounted, the other only in v2
                (self.path / file).write_text(value)

    def join(self) -> None:
        """Put the calling process, and what it will start, into the group."""
        with open(self.path / "cgroup.procs", "w") as procs:
            procs.write("0")

    def killed(self) -> bool:
        """Whether the kernel has killed a process of the group for memory."""
        lines = (line.split() for line in (self.path / self._hierarchy.events).read_text().splitlines())
        return any(line[0] == "oom_kill" and int(line[1]) > 0 for line in lines)

    def remove(self) -> None:
        _remove(self.path)


def group(name: str, limit: int) -> MemoryGroup | None:
    """A new group with `limit` bytes; None where this machine allows none."""
    hierarchy, _ = _find()
    return MemoryGroup(hierarchy, name, limit) if hierarchy is not None else None


def remove_all(prefix: str) -> None:
    """Remove the groups whose names begin with `prefix`: what a killed supervisor left."""
    hierarchy, _ = _find()
    for path in hierarchy.parent.glob(f"{prefix}*") if hierarchy is not None else ():
        _remove(path)


def unavailable() -> str:
    """Why limits are not enforced here; "" where they are."""
    return _find()[1]


def _remove(path: Path) -> None:
    for _ in range(50):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)  # the last process is on its way out


@cache
def _find() -> tuple[_Hierarchy | None, str]:
    reason = "no memory cgroup is mounted"
    for mount, own, (limits, events) in _mounts():
        for parent in [own, *own.parents]:
            if not parent.is_relative_to(mount):
                break
            try:
                trial = parent / f"posttrain-trial-{os.getpid()}"
                trial.mkdir()
                fits = (trial / limits[0]).exists()
                trial.rmdir()
            except OSError as problem:
                reason = f"{parent}: {problem.strerror}"
                continue
            if fits:
                return _Hierarchy(parent, limits, events), ""
            reason = f"{parent} does not pass on the memory controller"
    return None, reason


def _mounts() -> list[tuple[Path, Path, _Files]]:
    """Mount point, this process's own group below it, and the names of the files, v1 first."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own["v2" if controllers == "" else controllers] = path
    found: list[tuple[Path, Path, _Files]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, mount = fields.split()[3], Path(fields.split()[4])
        if kind == "cgroup" and "memory" in options.split(","):
            path = next((p for names, p in own.items() if "memory" in names.split(",")), "/")
            found.insert(0, (mount, mount / os.path.relpath(path, root), _V1))
        elif kind == "cgroup2":
            found.append((mount, mount / os.path.relpath(own.get("v2", "/"), root), _V2))
    return found
