"""Steps of a process on its way into a sandbox: descriptors, limits, namespaces, capabilities, filter.

Each acts on the calling process, a fork of the launcher with one thread, and cannot be taken back. The
order matters and is the launcher's: what needs the host's privileges first, the filter last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any

BROKEN = 250  # the exit code of a call that could not enter; what it writes to stderr says why

_libc = ctypes.CDLL(None, use_errno=True)
_HIGH = 200  # above every number that a descriptor is placed at
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 38, 47, 4
_FILTER_MODE, _CAPABILITY_V3 = 2, 0x20080522
_CLONE_NEWNS, _CLONE_NEWCGROUP, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_NS_GET_USERNS = 0xB701


def place(standard: list[int], further: dict[int, int], keep: list[int]) -> list[int]:
    """Make `standard` 0, 1 and 2 and each of `further` the number that it is mapped from; close all others but
    `keep`, whose new numbers are returned. Those are not inherited by what is executed."""
    wanted = {**dict(enumerate(standard)), **further}
    kept = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _HIGH) for handle in keep]
    moved = {number: fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _HIGH) for number, handle in wanted.items()}
    for number, handle in moved.items():
        os.dup2(handle, number)
    stay = {*wanted, *kept}
    for handle in [int(name) for name in os.listdir("/proc/self/fd")]:
        if handle not in stay:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(handle)
    return kept


def default_signals_when_executed() -> None:
    """What is executed finds signals as a fresh program expects them, whatever Python ignores: a handler is not
    inherited. For the launcher, once: done in each of its forks it would take as long as the fork. An interrupt, as of
    a terminal, ends a fork that has not executed anything yet, and not the launcher."""
    launcher = os.getpid()

    def interrupted(number: int, _: object) -> None:
        if os.getpid() != launcher:
            os._exit(128 + number)

    signal.signal(signal.SIGINT, interrupted)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, lambda *_: None)


def offer_to_the_oom_killer() -> None:
    own = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    os.write(own, b"500")
    os.close(own)


def give_up_root(uid: int) -> None:
    """Become `uid` where this is root; from here on nobody may look into this process."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def limit(limits: dict[str, int]) -> None:
    """Lower the limits named, as in {"RLIMIT_CORE": 0}."""
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def process_ids_of(pid: int) -> tuple[int, int]:
    """Descriptors of the namespace of process ids that `pid` lives in, and of the user namespace that owns it."""
    handle = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    return handle, fcntl.ioctl(handle, _NS_GET_USERNS)


def choose_process_ids(handle: int) -> None:
    """The namespace of process ids that the next fork is born into. Root's alone."""
    _check(_libc.setns(handle, _CLONE_NEWPID))


def join(owner: int, first: int, *, process_ids: bool) -> None:
    """Enter the namespaces of the process `first` (a pidfd), which `owner` owns; `process_ids` with the next fork.

    Nothing can be imported from here on: the files that one sees are the sandbox's.
    """
    sys.path.clear()
    sys.meta_path.clear()
    _check(_libc.setns(owner, _CLONE_NEWUSER))
    kinds = _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWCGROUP
    _check(_libc.setns(first, kinds | (_CLONE_NEWPID if process_ids else 0)))


def fork_and_pass_on() -> None:
    """Go on in a child; this process waits for it, and ends as it has ended."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        return
    os.closerange(0, _HIGH)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def join_users(first: int) -> None:
    """Enter the user namespace of `first`; nothing happens where this is in it."""
    if _libc.setns(first, _CLONE_NEWUSER) < 0 and ctypes.get_errno() != errno.EINVAL:
        _check(-1)


def drop_capabilities() -> None:
    """All of them, for good: nothing that is executed gives one back."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0))
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # the kernel knows no further one
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_V3, 0), 8)
    _check(_libc.capset(header, ctypes.create_string_buffer(24)))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def confine(program: bytes) -> None:
    """Take the seccomp filter `program`."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    _check(_libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, header, 0, 0))


def run(request: dict[str, Any], program: bytes) -> None:
    """Become the command; where that cannot be, say why on stderr as a shell would and end."""
    command, environment = request["command"], request["environment"]
    code = 126
    try:
        os.umask(0o022)
        confine(program)
        os.chdir(request["workdir"])
        os.execvpe(command[0], command, environment)
    except FileNotFoundError as problem:
        code = 127
        os.write(2, f"{problem.filename or command[0]}: {problem.strerror}\n".encode(errors="surrogateescape"))
    except (OSError, ValueError) as problem:
        os.write(2, f"{command[0]}: {getattr(problem, 'strerror', problem)}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(code)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
