"""How a container's processes are kept apart: bubblewrap, or path mapping where namespaces are refused.

Both drivers turn a `Process` into a `Launch` (argv, environment, working directory). What they share:
the pod's paths (`paths.Layout`), an environment that holds nothing of the engine's own, and the
network, which is the host's, so that daemons are reached at their pod's loopback address.

Bubblewrap gives each container its own root, /tmp, /dev, /proc and process ids; the host is seen
read-only and new files may be made anywhere outside the host's directories. Path mapping changes the
texts instead, and a program that makes up a path by itself can reach past it.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from posttrain.engine.paths import SCRIPT, Layout
from posttrain.isolation.bubblewrap import bubblewrap, refused
from posttrain.isolation.processes import MARKER

Driver = Literal["bubblewrap", "paths"]
CHOICE = "POSTTRAIN_ISOLATION"  # the driver to use, whatever the machine can do

_NS_GET_USERNS = 0xB701
_NAMESPACES = ["--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]
# Directories in which a container may make files beside those of the host; few, as every entry costs a mount.
_OPEN = ("/", "/home", "/media", "/mnt", "/srv")
_OWN = ("/run", "/tmp")  # nothing of the host's is seen in these
_KERNEL = ("/dev", "/proc", "/sys")
_UNSEEN = ("/boot", "/lost+found")
_DEVICES = ("/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/infiniband", "/dev/fuse")


@dataclass(frozen=True)
class Process:
    """What is started in a container: its main command, or the command of a probe or hook."""

    argv: list[str]
    environment: Mapping[str, str]
    working_directory: str
    layout: Layout


@dataclass(frozen=True)
class Launch:
    argv: list[str]
    environment: dict[str, str]
    directory: str


@dataclass(frozen=True)
class Choice:
    """The driver in use and, where it is path mapping, why bubblewrap is not."""

    driver: Driver
    reason: str = ""


@cache
def choose() -> Choice:
    """What this machine allows, tried once for the process."""
    wanted = os.environ.get(CHOICE)
    if wanted == "paths":
        return Choice("paths", f"{CHOICE}=paths")
    reason = refused(tuple(_NAMESPACES))
    return Choice("paths", reason) if reason else Choice("bubblewrap")


def mapped(process: Process) -> Launch:
    """Path mapping: the same process with host paths in everything it is given."""
    layout = process.layout
    directory = layout.find(process.working_directory)
    variables = process.environment.items()
    return Launch(
        argv=[layout.rewrite(text) for text in process.argv],
        environment={name: value if name == MARKER else layout.rewrite(value) for name, value in variables},
        directory=directory if os.path.isdir(directory) else layout.root,
    )


def wrapped(process: Process, options: list[str]) -> Launch:
    """Bubblewrap with `options` as `options_for` gives them: the container itself."""
    return _launch(process, ["--unshare-pid", *options])


def joined(process: Process, options: list[str], first: int) -> tuple[Launch, tuple[int, ...]]:
    """A further process of the container whose pid 1 is `first`, and the descriptors that it must be given.

    Where bubblewrap had to make user namespaces, that which owns the process ids has to be entered
    first, and then that of the container's processes. Raises OSError where `first` has gone.
    """
    pids = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(pids, _NS_GET_USERNS)
    users = os.open(f"/proc/{first}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    entering = ["--pidns", str(pids)]
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        entering += ["--userns", str(owner), "--userns2", str(users)]
    return _launch(process, [*entering, *options]), (pids, owner, users)


def _launch(process: Process, options: list[str]) -> Launch:
    program = bubblewrap()
    assert program is not None
    argv = [program, *options, "--chdir", process.working_directory, "--", *process.argv]
    return Launch(argv, dict(process.environment), "/")


def options_for(layout: Layout, working_directory: str) -> list[str]:
    """The binds that make `layout` real; makes the directories that they take from the container's root.

    The container's / is in memory. A directory that it must be able to write to, and each above it,
    is one of its own, with the host's entries bound into it one by one; all else of the host is bound
    whole. Those that the pod reads from or puts files into (`kept`) lie on disk, in the layout's root.
    """
    kept = {"/tmp", *map(posixpath.dirname, layout.declared)}
    if os.path.exists(layout.root + SCRIPT):
        kept.add(posixpath.dirname(SCRIPT))
    if working_directory != "/":
        kept.add(working_directory)
    kept = {path for path in kept if _is_own(path, layout)}
    made = [posixpath.dirname(m.path) for m in layout.mounts if not os.path.isdir(m.path)]
    opened = _with_parents([*_OPEN, *_OWN, *kept, *made], layout)
    hidden = {*opened, *_KERNEL, *_UNSEEN, *(m.path for m in layout.mounts)}
    options = ["--tmpfs", "/"]
    for directory in sorted(opened):
        if directory in kept:
            os.makedirs(layout.root + directory, exist_ok=True)
            options += ["--bind", layout.root + directory, directory]
        else:
            options += ["--dir", directory]
        if directory not in _OWN and os.path.isdir(directory):
            options += _host_entries(directory, hidden, layout)
    options += ["--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys"]
    for device in _devices():
        options += ["--dev-bind", device, device]
    if "/var/tmp" not in kept and os.path.isdir("/var/tmp"):
        options += ["--bind", layout.root + "/var/tmp", "/var/tmp"]
    for mount in sorted(layout.mounts, key=lambda m: m.path):
        options += ["--ro-bind" if mount.read_only else "--bind", mount.host, mount.path]
    return [*options, *_NAMESPACES]


def _is_own(path: str, layout: Layout) -> bool:
    return layout.mounted(path) is None and not path.startswith(_KERNEL)


def _with_parents(paths: Iterable[str], layout: Layout) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while path not in found and _is_own(path, layout):
            found.add(path)
            path = posixpath.dirname(path)
    return found


def _host_entries(directory: str, hidden: set[str], layout: Layout) -> list[str]:
    """What of the host is seen in a directory of the container's own, beside what has been put there."""
    options = []
    for entry in os.scandir(directory):
        path = posixpath.join(directory, entry.name)
        if path in hidden or os.path.lexists(layout.root + path):
            continue
        if entry.is_symlink():
            options += ["--symlink", os.readlink(path), path]
        elif entry.is_dir() or (entry.is_file() and directory != "/"):
            options += ["--ro-bind", path, path]
    return options


def _devices() -> list[str]:
    return ["/dev/" + name for name in os.listdir("/dev") if ("/dev/" + name).startswith(_DEVICES)]
