"""What a machine can do for us: each check looks at one thing and says what it found and what to do.

Invariants: a check changes nothing but a file that it makes and removes in the workspace, and never raises; what
judges takes plain values and is a function of them; importing this imports nothing heavy.

    ok     works
    warn   works less well, or something that not every run needs does not
    fail   a run on this machine will not work
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.errors import UserError

GIB = 2**30
PORT = 8000  # of the served model
# What the demo takes: two steps of up to 4 GiB side by side; environments, model, checkpoints and release.
MEMORY, DISK, SHARED = 8 * GIB, 12 * GIB, GIB // 2
KUBE = ".kube/config"  # kubectl's own default, below the home
CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Check:
    """`found` is what is there; `advice` what it means and what to do, empty where all is well."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def checks(workspace: Path) -> list[Check]:
    """Every check, the machine's first. Takes a few seconds at most."""
    machine = system(platform.system(), platform.machine(), platform.python_version())
    if machine.state == "fail":
        return [machine]
    place = next(p for p in (workspace.absolute(), *workspace.absolute().parents) if p.exists())
    return [
        machine,
        cores(len(os.sched_getaffinity(0)), _quota()),
        memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _memory_limit()),
        vllm_on_cpu(_flags()),
        *gpus(),
        disk(place, shutil.disk_usage(place).free),
        writing(place),
        file_system(place, Path("/proc/mounts").read_text().splitlines()),
        shared_memory(),
        *environments(CHECKOUT / "envs"),
        isolation(),
        limits(),
        sandboxes(),
        port(PORT),
        fuse(),
        cluster(),
    ]


def system(name: str, machine: str, python: str) -> Check:
    found = f"{name} {machine}, Python {python}"
    if name != "Linux":
        return Check("system", "fail", found, "the embedded engine runs on Linux: use it in a virtual machine")
    if machine != "x86_64":
        return Check("system", "warn", found, "the environments are locked for x86_64: `envs/install` may lack a wheel")
    return Check("system", "ok", found)


def cores(usable: int, quota: float | None) -> Check:
    """`quota` is what the cgroup allows, in cores."""
    count = min(usable, quota) if quota else usable
    found = f"{count:g}" + (f" (of {usable}, by the cgroup's quota)" if quota and quota < usable else "")
    if count < 2:
        return Check("cores", "fail", found, "a step of the laptop profile asks for 1.5: lower it in the profile")
    return Check("cores", "ok", found)


def memory(installed: int, limit: int | None) -> Check:
    size = min(installed, limit or installed)
    found = f"{size / GIB:.1f} GiB" + (f" (of {installed / GIB:.1f}, by the cgroup)" if size < installed else "")
    if size < 0.9 * MEMORY:
        return Check("memory", "warn", found, f"the demo takes {MEMORY // GIB} GiB: choose a smaller model or batch")
    return Check("memory", "ok", found)


def vllm_on_cpu(flags: set[str]) -> Check:
    """`flags` are the processor's, as /proc/cpuinfo names them."""
    if not flags & {"avx2", "avx512f"}:
        return Check(
            "vllm-cpu", "fail", "neither AVX2 nor AVX-512", "vLLM needs one of them: sample on another machine"
        )
    if "avx512f" not in flags:
        return Check(
            "vllm-cpu", "warn", "AVX2, no AVX-512", "sampling on this CPU is a few times slower than it may be"
        )
    if not flags & {"avx512_bf16", "amx_bf16"}:
        return Check("vllm-cpu", "warn", "AVX-512 without bf16", "set dtype to float32 where sampling seems slow")
    return Check("vllm-cpu", "ok", "AVX-512 with bf16" + (" and AMX" if "amx_bf16" in flags else ""))


def gpus() -> Iterator[Check]:
    if not Path("/dev/nvidiactl").exists():
        yield Check("gpu", "ok", "none: the laptop profile trains and samples on the CPU")
        return
    told = _output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    if told is None:
        advice = "the driver's device is there, but nvidia-smi does not answer: install the driver's tools or mend it"
        yield Check("gpu", "warn", "unknown", advice)
        return
    yield Check("gpu", "ok", "; ".join(told.splitlines()))
    if shutil.which("pixi") is None:
        yield Check("pixi", "warn", "not on PATH", "the environments `train` and `rollout` are installed with it")


def disk(place: Path, free: int) -> Check:
    found = f"{free / GIB:.1f} GiB free at {place}"
    if free < DISK:
        return Check("disk", "warn", found, f"the demo takes {DISK // GIB} GiB: free some space or give another -w")
    return Check("disk", "ok", found)


def writing(place: Path) -> Check:
    """Whether files can be made and renamed there, which is all that durability rests on."""
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".doctor-") as probe:
            Path(probe, "a").write_text("")
            os.replace(Path(probe, "a"), Path(probe, "b"))
    except OSError as problem:
        return Check("workspace", "fail", f"{place}: {problem.strerror}", "choose a directory of yours with -w")
    return Check("workspace", "ok", f"{place} can be written")


def file_system(place: Path, mounts: Iterable[str]) -> Check:
    """`mounts` are the lines of /proc/mounts."""
    kinds = {Path(fields[1].replace("\\040", " ")): fields[2] for fields in map(str.split, mounts)}
    kind = next((kinds[p] for p in (place, *place.parents) if p in kinds), "unknown")
    if kind in ("tmpfs", "ramfs"):
        return Check("file system", "warn", f"{kind}, in memory", "what is written there is gone after a restart")
    if kind in ("nfs", "nfs4", "cifs", "9p"):
        return Check("file system", "warn", kind, "locks and renames may be seen late by other machines")
    return Check("file system", "ok", kind)


def shared_memory() -> Check:
    """Tensors pass between processes through /dev/shm; containers often leave 64 MiB for it."""
    size = shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0
    if size < SHARED:
        return Check("/dev/shm", "warn", f"{size / GIB:.2f} GiB", "mount a larger one: docker run --shm-size=2g")
    return Check("/dev/shm", "ok", f"{size / GIB:.1f} GiB")


def environments(envs: Path) -> Iterator[Check]:
    for name in ("control", "cpu"):
        where = _output([str(envs / "install"), "--where", name])
        if where is None:
            yield Check(f"env {name}", "fail", f"{envs}/install does not answer", "use a whole checkout of the project")
        elif not Path(where.strip(), "environment").exists():
            yield Check(f"env {name}", "warn", "not installed", f"run envs/install {name}, as `make demo` does")
        else:
            yield Check(f"env {name}", "ok", where.strip())


def isolation() -> Check:
    from posttrain.engine.isolation import choose

    choice = choose()
    if choice.driver == "bubblewrap":
        return Check("isolation", "ok", "bubblewrap: each pod has mounts, a /tmp and processes of its own")
    advice = (
        "pods have their paths mapped instead, and a program can reach past that; allow user namespaces"
        " (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)"
    )
    return Check("isolation", "warn", choice.reason, advice)


def limits() -> Check:
    from posttrain.isolation.cgroups import hierarchies, unavailable

    kind = " and ".join(sorted({f"v{h.version}" for h in hierarchies()})) or "none to be made"
    if reason := unavailable():
        advice = "what has no cgroup is not limited in pods: run as root, or let systemd delegate a cgroup to you"
        return Check("cgroups", "warn", f"{kind}: {reason}", advice)
    return Check("cgroups", "ok", f"{kind}: limits of pods and sandboxes are enforced")


def sandboxes() -> Check:
    """What keeps the code in a sandbox apart, and which of its limits hold here."""
    from posttrain.isolation import bubblewrap, cgroups, seccomp
    from posttrain.sandbox.local import overlay_refused

    if reason := bubblewrap.refused(("--unshare-user", "--unshare-net")):
        return Check("sandboxes", "warn", reason, "no sandbox can be made here: use the driver kubernetes")
    if reason := seccomp.unavailable():
        return Check("sandboxes", "warn", reason, "no sandbox is made without its filter")
    lacking = []
    if reason := cgroups.unavailable():
        lacking.append(f"{reason}: limits of single processes stand in for memory and pids, none for cpu")
        if not cgroups.hierarchies():
            lacking.append("a call that runs out of time may leave a daemon until its sandbox ends")
    if reason := overlay_refused():
        lacking.append(f"no overlay ({reason}): a root directory is copied for each sandbox")
    if lacking:
        return Check("sandboxes", "warn", "bubblewrap, with less than all limits", "; ".join(lacking))
    return Check("sandboxes", "ok", "bubblewrap with cgroups, a seccomp filter and overlays")


def port(number: int) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", number))
        except OSError as problem:
            found = f"{number}: {problem.strerror}"
            return Check("port", "warn", found, "`posttrain serve --port N` takes another; see who holds it: ss -ltnp")
    return Check("port", "ok", f"{number} is free")


def fuse(device: Path = Path("/dev/fuse"), find: Callable[[str], str | None] = shutil.which) -> Check:
    """What JuiceFS needs to be mounted; a workspace in a plain directory needs none of it."""
    lacking = [] if os.access(device, os.R_OK | os.W_OK) else [f"{device} cannot be opened"]
    if os.geteuid() and not (find("fusermount3") or find("fusermount")):
        lacking.append("no fusermount")
    if lacking:
        advice = "JuiceFS cannot be mounted here: use a plain directory, or install fuse3 and pass the device in"
        return Check("juicefs", "warn", ", ".join(lacking), advice)
    return Check("juicefs", "ok", "FUSE can be mounted")


def cluster() -> Check:
    """Whether what `posttrain submit` would talk to answers."""
    from posttrain.argo.settings import read_settings

    try:
        settings = read_settings(os.environ)
    except UserError as problem:
        return Check("cluster", "warn", str(problem), "`posttrain submit` will refuse")
    if not settings.server:
        if shutil.which("kubectl") is None or not (os.environ.get("KUBECONFIG") or Path.home().joinpath(KUBE).exists()):
            return Check("cluster", "ok", "none configured: `posttrain submit` needs ARGO_SERVER or kubectl")
        told = _output(["kubectl", "version", "--request-timeout=3s"])
        if told is None:
            return Check(
                "cluster", "warn", "kubectl does not reach a cluster", "see KUBECONFIG, `kubectl cluster-info`"
            )
        return Check("cluster", "ok", "kubectl reaches a cluster")
    import httpx

    where = f"{settings.server}/api/v1/version"
    try:
        answer = httpx.get(where, headers=settings.headers, verify=settings.verify, timeout=3)
    except (httpx.TransportError, httpx.InvalidURL) as problem:
        advice = "see ARGO_SERVER, ARGO_SECURE, ARGO_INSECURE_SKIP_VERIFY"
        return Check("cluster", "warn", f"{settings.server} does not answer: {problem}", advice)
    if answer.is_error:
        return Check("cluster", "warn", f"{settings.server} says {answer.status_code}", "see ARGO_TOKEN")
    return Check("cluster", "ok", f"{settings.server} answers")


def _flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return set(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _quota() -> float | None:
    """Cores that the cgroup allows: v2's cpu.max, or v1's quota and period."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join(Path("/sys/fs/cgroup", file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        return int(quota) / int(period) if quota.isdigit() else None
    return None


def _memory_limit() -> int | None:
    """Bytes that the cgroup allows."""
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = Path("/sys/fs/cgroup", file).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _output(command: list[str]) -> str | None:
    """What `command` prints; None where it cannot be started, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
