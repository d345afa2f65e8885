"""A seccomp filter from a maintained profile: what is not listed is refused.

The list is that of containers/common, as Debian ships it (`profile.json`, see profile.md), for a container
without capabilities. On top of it is refused what that list allows for containers within containers, and
every family of sockets that a network namespace does not hold in.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from functools import cache
from importlib import resources
from typing import Any

# Allowed by the list for containers in containers, or for kernels older than a hole was found in.
WITHHELD = frozenset([
    "setns", "unshare", "clone3",  # namespaces
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "name_to_handle_at",
    "open_by_handle_at", "open_tree", "pivot_root", "quotactl", "quotactl_fd", "umount", "umount2",  # mounts
    "kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace",  # other processes
    "add_key", "keyctl", "request_key",  # key rings, which no namespace parts
    "bpf", "io_uring_enter", "io_uring_register", "io_uring_setup", "perf_event_open", "userfaultfd",
])  # fmt: skip
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW* but that of time, which clone cannot make
_TREE = 2  # a tree of numbers, not a list: the kernel, which tries each number when it takes a filter, is done in half
_OPERATORS = {"SCMP_CMP_EQ": "EQ", "SCMP_CMP_NE": "NE", "SCMP_CMP_LE": "LE", "SCMP_CMP_GE": "GE"}


@cache
def unavailable() -> str:
    """Why no filter can be made here; "" where it can."""
    try:
        program()
    except (ImportError, RuntimeError, OSError) as problem:
        return f"libseccomp cannot be used ({problem}): install libseccomp2 and the wheel pyseccomp"
    return ""


@cache
def program() -> bytes:
    """The filter as BPF for this machine's architecture."""
    import pyseccomp as seccomp

    profile = json.loads(resources.files(__package__).joinpath("profile.json").read_text())
    filter = seccomp.SyscallFilter(seccomp.ERRNO(profile["defaultErrnoRet"]))
    filter.set_attr(seccomp.Attr.CTL_OPTIMIZE, _TREE)
    for rule in profile["syscalls"]:
        if not _applies(rule):
            continue
        for name in set(rule["names"]) - WITHHELD - {"clone", "socket"}:
            _add(seccomp, filter, rule, name)
    for name in WITHHELD - {"clone3"}:  # which glibc takes for an old kernel and asks clone instead
        _refuse(seccomp, filter, name)
    filter.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _NEW_NAMESPACES, 0))
    for family in FAMILIES:
        filter.add_rule(seccomp.ALLOW, "socket", seccomp.Arg(0, seccomp.EQ, family))
    # Of netlink only what lists a namespace's own interfaces, as getaddrinfo does.
    netlink = (seccomp.Arg(0, seccomp.EQ, socket.AF_NETLINK), seccomp.Arg(2, seccomp.EQ, socket.NETLINK_ROUTE))
    filter.add_rule(seccomp.ALLOW, "socket", *netlink)
    reader = os.memfd_create("seccomp")
    try:
        with os.fdopen(reader, "w+b", closefd=False) as file:
            filter.export_bpf(file)
        return os.pread(reader, 1 << 20, 0)
    finally:
        os.close(reader)


def _applies(rule: dict[str, Any]) -> bool:
    """Whether a rule holds for a process without capabilities on this architecture."""
    includes = rule.get("includes") or {}
    arches = includes.get("arches")
    return not includes.get("caps") and (not arches or _architecture() in arches)


def _architecture() -> str:
    """By the name that Go gives it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _add(seccomp: Any, filter: Any, rule: dict[str, Any], name: str) -> None:
    if rule["action"] == "SCMP_ACT_ALLOW":
        action = seccomp.ALLOW
    else:
        action = seccomp.ERRNO(rule.get("errnoRet", errno.EPERM))
    arguments = [
        seccomp.Arg(a["index"], getattr(seccomp, _OPERATORS[a["op"]]), a["value"]) for a in rule.get("args") or []
    ]
    try:
        filter.add_rule(action, name, *arguments)
    except OSError as problem:
        if problem.errno not in (errno.EDOM, errno.EINVAL, errno.EACCES):  # unknown here, or the default's action
            raise


def _refuse(seccomp: Any, filter: Any, name: str) -> None:
    try:
        filter.add_rule(seccomp.ERRNO(errno.EPERM), name)
    except OSError as problem:
        if problem.errno not in (errno.EDOM, errno.EINVAL):
            raise
