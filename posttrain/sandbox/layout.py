"""What a sandbox sees: bubblewrap's options for a spec. Deciding only; `Plan` is carried out by the driver.

Without `spec.root` a sandbox sees the programs of this machine: /usr and what belongs to it, a small /etc, and
the Python environment that this process runs in, first on its PATH. All of it read-only. With a root it
sees that directory, and what it writes there goes to memory (overlay).

Writable are the workspace, /tmp and /dev/shm, each a file system in memory of `spec.disk` bytes that the
sandbox's memory limit counts; so a full disk is the sandbox's own, and nothing has to be deleted.
"""

from __future__ import annotations

import os
import posixpath
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from posttrain.isolation import cgroups
from posttrain.sandbox.spec import WORKSPACE, Network, SandboxSpec

HOME = "/tmp/home"
PROXY_PORT, GATEWAY_PORT = 3128, 8080  # at the sandbox's own loopback
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("alternatives", "ssl", "localtime")  # few: each bind costs as much as starting a small program
_ETC_COPIED = ("ld.so.cache", "protocols")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Pid 1 waits until its stdin is closed. Whatever is left to it and ends interrupts `read`; `jobs` then reaps it
# without a fork, which a sandbox that is full of processes would refuse.
_HOLD = 'trap x=1 CHLD; echo; while x=; read _ || test "$x"; do jobs; done'


class Source(dict[str, str]):
    """A path of this machine, which the launcher makes one that an unprivileged user can reach."""

    def __init__(self, path: str):
        super().__init__(source=os.path.realpath(path))


@dataclass(frozen=True)
class Plan:
    """bubblewrap's arguments but the program; a `Source` stands for a path of this machine. `texts` are the contents
    of small files, given as descriptors from the number on that `plan` was told."""

    arguments: list[str | Source]
    texts: list[bytes]


def plan(spec: SandboxSpec, *, first: int, copy: str = "") -> Plan:
    """`first` is the number of the first descriptor; `copy` one of the root to write to, where there is no overlay."""
    made = _Made(first)
    if spec.root and copy:
        made.options += ["--bind", Source(copy), "/"]
    elif spec.root:
        made.options += ["--overlay-src", Source(spec.root), "--tmp-overlay", "/"]
    else:
        made.options += _programs()
    for path, source in spec.mounts.items():
        made.bind(source, path)
    made.options += ["--unsetenv", "LD_PRELOAD", "--proc", "/proc", "--dev", "/dev"]  # by which the program was loaded
    # A namespace's own settings belong to its owner, who is the sandbox's user.
    made.options += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for path in dict.fromkeys([WORKSPACE, "/tmp", "/dev/shm", *([] if _covered(spec.workdir) else [spec.workdir])]):
        mode = "1777" if path == "/tmp" else "0700"
        made.options += ["--perms", mode, "--size", str(spec.disk_bytes), "--tmpfs", path]
    made.options += ["--dir", HOME]
    made.options += ["--remount-ro", "/dev"]
    if not spec.root:
        for name, text in _etc(spec).items():
            made.text(f"/etc/{name}", text)
        made.options += ["--remount-ro", "/"]
    return Plan([*made.options, *_apart(spec), "--", "/bin/sh", "-c", _HOLD], made.texts)


def environment(spec: SandboxSpec) -> dict[str, str]:
    """The variables of every call: few of ours, the spec's over them."""
    base = {
        "PATH": _PATH if spec.root else f"{sys.prefix}/bin:{_PATH}",
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "USER": "sandbox",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if spec.network.mode is Network.allow:
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        for name in ("http_proxy", "https_proxy"):
            base |= {name: proxy, name.upper(): proxy}
    elif spec.network.mode is Network.gateway:
        base["POSTTRAIN_GATEWAY"] = f"http://127.0.0.1:{GATEWAY_PORT}"
    return base | dict(spec.environment)


def resource_limits(spec: SandboxSpec) -> dict[str, int]:
    """Limits of each process: few, as groups limit the whole; what has no group here gets the nearest that there is."""
    limits = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 65536, "RLIMIT_FSIZE": spec.disk_bytes}
    if cgroups.unavailable(["pids"]):
        limits["RLIMIT_NPROC"] = spec.pids  # counted within the sandbox's user namespace
    if cgroups.unavailable(["memory"]):
        limits["RLIMIT_AS"] = spec.memory_bytes
    return limits


def group_limits(spec: SandboxSpec) -> dict[str, float | None]:
    """Limits of the group; none of the cores where as many are allowed as there are, since a group costs time."""
    cpu = spec.cpu if spec.cpu < (os.cpu_count() or 1) else None
    return {"memory": spec.memory_bytes, "cpu": cpu, "pids": spec.pids}


class _Made:
    def __init__(self, first: int):
        self.options: list[str | Source] = []
        self.texts: list[bytes] = []
        self._next = first

    def bind(self, source: str, path: str) -> None:
        self.options += ["--ro-bind", Source(source), path]

    def text(self, path: str, text: str | bytes) -> None:
        self.options += ["--perms", "0444", "--file", str(self._next), path]
        self.texts.append(text.encode() if isinstance(text, str) else text)
        self._next += 1


@cache
def _programs() -> tuple[str | Source, ...]:
    """The programs of this machine, which stay where they are while this process runs."""
    found: list[str | Source] = []
    for path in (*_PROGRAMS, *(f"/etc/{name}" for name in _ETC)):
        if os.path.islink(path):
            found += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            found += ["--ro-bind", Source(path), path]
    for prefix in sorted({sys.prefix, sys.base_prefix}):
        if not prefix.startswith(tuple(f"{each}/" for each in _PROGRAMS)) and prefix not in _PROGRAMS:
            found += ["--ro-bind", Source(prefix), prefix]
    return tuple(found)


def _etc(spec: SandboxSpec) -> dict[str, str | bytes]:
    return {
        "passwd": f"root:x:0:0::/:\nsandbox:x:{spec.user}:{spec.user}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:\n",
        "group": f"root:x:0:\nsandbox:x:{spec.user}:\nnogroup:x:65534:\n",
        **{name: _content(f"/etc/{name}") for name in _ETC_COPIED},
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


@cache
def _content(path: str) -> bytes:
    return Path(path).read_bytes() if os.path.exists(path) else b""


def _apart(spec: SandboxSpec) -> list[str]:
    kinds = ["user", "pid", "net", "ipc", "uts", "cgroup"]
    return [
        *(f"--unshare-{kind}" for kind in kinds), "--disable-userns", "--die-with-parent", "--new-session",
        "--as-pid-1", "--uid", str(spec.user), "--gid", str(spec.user), "--hostname", "sandbox", "--cap-drop", "ALL",
        "--chdir", "/",
    ]  # fmt: skip


def _covered(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in (WORKSPACE, "/tmp", "/dev/shm"))


def in_sandbox(path: str, spec: SandboxSpec) -> str:
    """A path as calls of the protocol give it: relative ones lie in the working directory."""
    return posixpath.normpath(posixpath.join(spec.workdir, path))
