"""The examinations behind `posttrain doctor`: each looks at one thing and says what it found."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.contract.record import ROOT
from posttrain.errors import UserError

GIB = 2**30
NEEDED_MEMORY, NEEDED_DISK, NEEDED_CORES = 8 * GIB, 10 * GIB, 2
SERVING_PORT = 8000


@dataclass(frozen=True)
class Finding:
    """`bad` stops a run on this machine; `note` makes something less good or missing."""

    name: str
    state: Literal["ok", "note", "bad"]
    says: str
    remedy: str = ""


def examine(workspace: Path) -> list[Finding]:
    """Every finding, the machine's first. Changes nothing but a file that it makes and removes in `workspace`."""
    return [
        *_python(),
        *_cores(),
        *_memory(),
        *_disk(workspace),
        *_workspace(workspace),
        *_isolation(),
        *_environments(),
        *_gpus(),
        *_port(),
        *_cluster(),
    ]


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    if platform.system() != "Linux":
        yield Finding("system", "bad", f"the embedded engine does not run on {platform.system()}", "use Linux")


def _cores() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < NEEDED_CORES:
        yield Finding(
            "cores", "bad", f"{cores}; the laptop profile asks for up to 1500m a step",
            "lower profile.steps.NAME.cpu",
        )  # fmt: skip
    else:
        yield Finding("cores", "ok", str(cores))


def _memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total < NEEDED_MEMORY * 0.9:
        yield Finding("memory", "note", f"{total / GIB:.0f} GiB; the demo wants 8", "use a smaller model or batch")
    else:
        yield Finding("memory", "ok", f"{total / GIB:.0f} GiB")


def _disk(workspace: Path) -> Iterator[Finding]:
    there = next(p for p in (workspace, *workspace.parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < NEEDED_DISK:
        yield Finding("disk", "note", f"{free / GIB:.1f} GiB free at {there}; the demo wants 10", "free some space")
    else:
        yield Finding("disk", "ok", f"{free / GIB:.0f} GiB free at {there}")


def _workspace(workspace: Path) -> Iterator[Finding]:
    there = next(p for p in (workspace, *workspace.parents) if p.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".doctor-") as probe:
            os.replace(probe.name, probe.name + ".renamed")
            os.replace(probe.name + ".renamed", probe.name)
    except OSError as problem:
        yield Finding("workspace", "bad", f"{there} cannot be written: {problem.strerror}", "choose another: -w DIR")
    else:
        yield Finding("workspace", "ok", f"{workspace} can be written")


def _isolation() -> Iterator[Finding]:
    bwrap = shutil.which("bwrap") or _bundled_bwrap()
    if bwrap is None:
        yield Finding("isolation", "note", "no bubblewrap: paths of pods are mapped instead", "install bubblewrap")
        return
    probe = [bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        yield Finding(
            "isolation", "note", f"user namespaces are refused ({why}): paths of pods are mapped instead",
            "see sysctl kernel.unprivileged_userns_clone and user.max_user_namespaces",
        )  # fmt: skip
    else:
        yield Finding("isolation", "ok", "bubblewrap: every pod has its own mounts, /tmp and processes")


def _bundled_bwrap() -> str | None:
    candidate = Path(sys.executable).parent / "bwrap"
    return str(candidate) if candidate.exists() else None


def _environments() -> Iterator[Finding]:
    runner = ROOT / "envs" / "run"
    if not runner.exists():
        yield Finding("environments", "bad", f"{runner} is missing", "use a checkout of the project")
        return
    for name in ("control", "cpu"):
        done = subprocess.run([runner, name, "python", "-c", "pass"], capture_output=True, text=True)
        if done.returncode:
            yield Finding(f"environment {name}", "note", "is not installed yet", f"run envs/install {name}")
        else:
            yield Finding(f"environment {name}", "ok", "is installed")


def _gpus() -> Iterator[Finding]:
    if shutil.which("nvidia-smi") is None:
        yield Finding("gpu", "note", "none: the laptop profile trains and samples on the CPU")
        return
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    if done.returncode:
        yield Finding("gpu", "note", f"nvidia-smi fails: {done.stderr.strip() or done.stdout.strip()}")
    else:
        yield Finding("gpu", "ok", "; ".join(done.stdout.strip().splitlines()))


def _port() -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", SERVING_PORT))
        except OSError:
            yield Finding("port", "note", f"{SERVING_PORT} is taken on 127.0.0.1", "`posttrain serve --port N`")
        else:
            yield Finding("port", "ok", f"{SERVING_PORT} is free")


def _cluster() -> Iterator[Finding]:
    from posttrain.argo import connect

    try:
        cluster = connect()
    except UserError:
        yield Finding("cluster", "note", "none is known: `posttrain submit` needs ARGO_SERVER or kubectl")
    else:
        yield Finding("cluster", "ok", f"`posttrain submit` goes to {cluster.where}")
