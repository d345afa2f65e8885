"""Each test is code inside a sandbox that tries to get out, to see, or to take more than its share."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from posttrain.isolation import cgroups
from posttrain.sandbox import Outcome, SandboxGone
from posttrain.sandbox.bubblewrap import UID
from tests.sandbox.conftest import Boxes

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")
LIMITED = pytest.mark.skipif(bool(cgroups.unavailable()), reason=cgroups.unavailable())


def _says(boxes: Boxes, code: str, **fields) -> str:
    result = boxes.python(code, **fields)
    assert result.outcome is Outcome.succeeded, (result.detail, result.stderr)
    return result.text


# -- network


def test_the_hosts_loopback_is_not_reached(boxes: Boxes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})))"
        assert _says(boxes, code).strip() == "111"  # refused: nobody listens at the sandbox's own


def test_there_is_no_way_to_the_outside(boxes: Boxes) -> None:
    code = """
import socket
print(sorted(name for _, name in socket.if_nameindex()))
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        print(socket.socket(family, kind).connect_ex((address, 53)))
try:
    print(socket.getaddrinfo("example.org", 443))
except socket.gaierror:
    print("no name")
"""
    assert _says(boxes, code).split("\n")[:-1] == ["['lo']", "101", "101", "101", "101", "no name"]


def test_abstract_sockets_of_the_host_are_not_reached(boxes: Boxes) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0posttrain-test-secret")
        server.listen()
        code = "import socket; print(socket.socket(socket.AF_UNIX).connect_ex('\\0posttrain-test-secret'))"
        assert _says(boxes, code).strip() == "111"
        assert "posttrain-test-secret" not in _says(boxes, "print(open('/proc/net/unix').read())")


def test_sockets_that_no_network_namespace_holds_in_are_refused(boxes: Boxes) -> None:
    code = """
import socket
STREAM, DGRAM, RAW, NETLINK, BLUETOOTH = 1, 2, 3, 16, 31
for family in (socket.AF_VSOCK, socket.AF_PACKET, socket.AF_ALG, BLUETOOTH, NETLINK):
    for kind, protocol in ((STREAM, 0), (DGRAM, 0), (RAW, 9), (RAW, 15)):
        try:
            socket.socket(family, kind, protocol)
            if (family, protocol) != (NETLINK, 0):
                print("made", family, kind, protocol)
        except OSError:
            pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print("raw")
except PermissionError:
    print("refused")
"""
    assert _says(boxes, code).split() == ["refused"]


# -- files, processes, environment


def test_files_of_the_host_are_not_seen(boxes: Boxes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("posttrain-test-secret")
    secret.chmod(0o644)
    code = f"""
import os
private = "/etc/shadow /etc/machine-id /root/.ssh /home /var /run /sys /boot /mnt".split()
for path in ({str(secret)!r}, *private):
    for root in ("", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/..", "/oldroot", "/newroot"):
        if os.path.exists(root + path):
            print("seen", root + path)
"""
    assert _says(boxes, code) == ""


def test_programs_of_the_host_cannot_be_written(boxes: Boxes) -> None:
    code = """
import os
for path in "/ /usr /usr/bin /usr/bin/env /bin /etc /etc/passwd /etc/ssl /dev /proc/self/exe".split():
    try:
        handle = os.open(path if not os.path.isdir(path) else path + "/planted", os.O_WRONLY | os.O_CREAT)
        print("opened", path)
    except OSError:
        pass
"""
    assert _says(boxes, code) == ""


@ROOT_ONLY
def test_processes_of_the_host_are_neither_seen_nor_signalled(boxes: Boxes) -> None:
    with subprocess.Popen(["sleep", "60"], user=UID, group=UID, extra_groups=[]) as sentinel:
        code = f"""
import os, signal
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])
for pid in (-1, {sentinel.pid}):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
"""
        assert _says(boxes, code).strip() == "True"
        assert sentinel.poll() is None
        sentinel.kill()


def test_killing_everything_inside_leaves_the_sandbox_usable(boxes: Boxes) -> None:
    async def work() -> tuple[Outcome, Outcome]:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            first = await sandbox.exec(["sh", "-c", "kill -9 -1; kill -9 1; kill -9 $$"])
            return first.outcome, (await sandbox.exec(["true"])).outcome

    assert boxes.run(work()) == (Outcome.failed, Outcome.succeeded)


def test_another_sandbox_leaves_no_trace_that_can_be_found(boxes: Boxes) -> None:
    traces = """
import os, mmap, ctypes
for path in ("/workspace", "/tmp", "/dev/shm"):
    open(path + "/trace", "w").write("posttrain-test-trace")
libc = ctypes.CDLL(None)
print(libc.shmget(4242, 4096, 0o1666), libc.mq_open(b"/trace", 0o102, 0o666, None))
"""
    look = """
import os, ctypes
seen = [p for p in ("/workspace", "/tmp", "/dev/shm") if os.path.exists(p + "/trace")]
print(seen, ctypes.CDLL(None).shmget(4242, 4096, 0))
"""

    async def work() -> tuple[str, str]:
        async with boxes.driver.sandbox(boxes.spec()) as one, boxes.driver.sandbox(boxes.spec()) as other:
            assert (await one.exec(["python3", "-I", "-c", traces])).outcome is Outcome.succeeded
            own, seen = await one.exec(["python3", "-I", "-c", look]), await other.exec(["python3", "-I", "-c", look])
            return own.text, seen.text

    own, seen = boxes.run(work())
    assert own.startswith("['/workspace', '/tmp', '/dev/shm']") and seen == "[] -1\n"


def test_kernel_settings_cannot_be_written(boxes: Boxes) -> None:
    code = """
import os
tried = 0
for root in ("/proc/sys", "/proc/irq", "/proc/fs", "/proc/bus"):
    for directory, _, names in os.walk(root):
        for name in names:
            tried += 1
            try:
                os.close(os.open(os.path.join(directory, name), os.O_WRONLY))
                print("opened", directory, name)
            except OSError:
                pass
for path in "/proc/sysrq-trigger /proc/kcore /proc/kmsg /proc/self/uid_map /proc/self/oom_score_adj".split():
    try:
        handle = os.open(path, os.O_WRONLY)
        os.write(handle, b"-1000" if "oom" in path else b"c")
        print("written", path)
    except OSError:
        pass
print(tried > 500)
"""
    assert _says(boxes, code) == "True\n"


def test_the_environment_of_the_worker_and_its_launcher_is_not_seen(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTTRAIN_TEST_SECRET", "posttrain-test-secret")
    launcher = Path(f"/proc/{boxes.driver.line.process.pid}/environ")
    assert launcher.read_bytes() == b""
    code = """
import os
print(sorted(os.environ))
for pid in os.listdir("/proc"):
    if pid.isdigit():
        text = open(f"/proc/{pid}/environ").read()
        print("secret" in text or "PYTHONPATH" in text, int(pid) == 1 and text)
"""
    names, first, own = _says(boxes, code).splitlines()
    assert set(eval(names)) <= {"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR", "USER", "LC_CTYPE"}
    assert first.startswith("False") and own == "False False"
    assert "secret" not in first


def test_no_descriptor_leads_out(boxes: Boxes) -> None:
    code = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in range(3)], os.listdir('/proc/self/fd'))"
    links, listed = _says(boxes, code).split("] [")
    assert all(kind in links for kind in ("pipe:",)) and "/work" not in links
    assert sorted(eval("[" + listed)) == ["0", "1", "2", "3"]  # 3 is the listing's own


# -- the kernel


def test_namespaces_and_mounts_cannot_be_made(boxes: Boxes) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000, 0x80):
    if libc.unshare(flag) == 0: print("unshared", hex(flag))
    pid = libc.syscall(56, flag | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0 and flag != 0x80: print("cloned", hex(flag))
handle = os.open("/proc/1/ns/mnt", os.O_RDONLY)
if libc.setns(handle, 0) == 0: print("entered")
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0: print("mounted")
if libc.mount(None, b"/usr", None, 32 | 4096, None) == 0: print("remounted")
if libc.umount2(b"/etc/ssl", 2) == 0: print("unmounted")
if libc.pivot_root(b"/tmp", b"/tmp") == 0: print("pivoted")
if libc.chroot(b"/tmp") == 0: print("rooted")
"""
    assert _says(boxes, code) == ""


def test_other_processes_cannot_be_traced_or_read(boxes: Boxes) -> None:
    code = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0: time.sleep(30)
for pid in (child, 1):
    if libc.ptrace(16, pid, 0, 0) == 0 or libc.ptrace(0x4206, pid, 0, 0) == 0: print("traced", pid)
    buffer = ctypes.create_string_buffer(16)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) > 0: print("read", pid)
os.kill(child, signal.SIGKILL)
"""
    assert _says(boxes, code) == ""


def test_calls_that_sandboxes_have_no_use_for_are_refused(boxes: Boxes) -> None:
    code = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
calls = {
    "io_uring_setup": 425, "io_uring_enter": 426, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "keyctl": 250, "add_key": 248, "kexec_load": 246, "init_module": 175, "open_by_handle_at": 304, "clone3": 435,
    "swapon": 167, "reboot": 169, "settimeofday": 164, "clock_settime": 227, "acct": 163, "quotactl": 179,
    "no such": 9999,
}
for name, number in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, ctypes.get_errno())
"""
    assert _says(boxes, code) == ""


def test_devices_are_the_harmless_few(boxes: Boxes) -> None:
    code = """
import os, stat
allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
for directory, _, names in os.walk("/dev"):
    for name in names:
        mode = os.lstat(os.path.join(directory, name)).st_mode
        if (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and name not in allowed: print("device", directory, name)
for kind in (stat.S_IFBLK, stat.S_IFCHR):
    try:
        os.mknod("/workspace/device", kind | 0o666, os.makedev(254, 0))
        open("/workspace/device", "rb").read(1)
        print("made and opened")
    except OSError:
        pass
try:
    open("/dev/tty")
    print("terminal")
except OSError:
    pass
"""
    assert _says(boxes, code) == ""


def test_no_program_gives_more_rights(boxes: Boxes) -> None:
    result = boxes.sh(
        "cat /proc/self/status; find /usr/bin -perm -4000 -type f | head -3 | while read p; do $p -h; done; su -c id"
    )
    status = dict(line.split(":\t", 1) for line in result.text.splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert "uid=0" not in result.text


# -- more than its share


@LIMITED
def test_a_fork_bomb_meets_its_limit_and_its_end(boxes: Boxes) -> None:
    async def work() -> Outcome:
        async with boxes.driver.sandbox(boxes.spec(pids=40)) as sandbox:
            bomb = "import os, time\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    time.sleep(0.01)"
            result = await sandbox.exec(["python3", "-I", "-c", bomb], timeout=2)
            # Killed they are; their last trace goes when the sandbox's pid 1 has taken note.
            while int((await sandbox.exec(["sh", "-c", "ls /proc | grep -c '^[0-9]'"])).text or 40) > 6:
                await asyncio.sleep(0.05)
            return result.outcome

    assert boxes.run(work()) is Outcome.timed_out


@LIMITED
def test_a_memory_bomb_is_told_as_such(boxes: Boxes) -> None:
    result = boxes.python("x = []\nwhile True: x.append(bytearray(1 << 20))", memory="64Mi")
    assert result.outcome is Outcome.out_of_memory, result
    filled = boxes.sh("head -c 200M /dev/zero > /tmp/a", memory="64Mi", disk="512Mi")
    assert filled.outcome is Outcome.out_of_memory, filled


def test_a_full_disk_is_told_as_such_and_is_the_sandboxs_own(boxes: Boxes) -> None:
    before = os.statvfs("/tmp").f_bavail
    for path in ("/workspace/a", "/tmp/a", "/dev/shm/a"):
        result = boxes.sh(
            f"i=0; while [ $i -lt 40 ]; do head -c 1M /dev/zero >> {path} || exit 1; i=$((i+1)); done", disk="16Mi"
        )
        assert result.outcome is Outcome.over_quota, (path, result)
    assert abs(os.statvfs("/tmp").f_bavail - before) * 4096 < 1 << 30


@LIMITED
def test_files_that_hold_nothing_take_of_the_sandboxs_memory(boxes: Boxes) -> None:
    code = "import os, itertools\nfor n in itertools.count(): os.close(os.open(f'/workspace/{n}', os.O_CREAT))"
    assert boxes.python(code, memory="64Mi").outcome is Outcome.out_of_memory


def test_a_flood_of_output_is_cut(boxes: Boxes) -> None:
    begun = time.monotonic()
    for stream in ("1", "2"):
        result = boxes.sh(f"yes >&{stream}", output="100Ki")
        assert result.outcome is Outcome.over_quota
        assert len(result.stdout) + len(result.stderr) == 100 << 10
    assert time.monotonic() - begun < 10


DAEMON = f"""
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(4242)  # {os.getpid()}
"""


def _sleepers() -> list[str]:
    """Those of this process: others may run the same tests."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if DAEMON.rstrip().rpartition("\n")[2].encode() in text and int(pid) != os.getpid():
            found.append(pid)
    return found


def test_a_daemon_ends_with_its_sandbox(boxes: Boxes) -> None:
    async def work() -> list[str]:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            result = await sandbox.exec(["python3", "-I", "-c", DAEMON])
            assert result.outcome is Outcome.succeeded and result.seconds < 10
            while len(_sleepers()) > 1:  # those that forked are about to be gone
                await asyncio.sleep(0.05)
            return _sleepers()

    assert len(boxes.run(work())) == 1  # it outlives its call
    assert _sleepers() == []


@LIMITED
def test_a_daemon_ends_with_a_call_that_runs_out_of_time(boxes: Boxes) -> None:
    async def work() -> None:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            waits = DAEMON.replace("if os.fork(): os._exit(0)", "if os.fork(): time.sleep(60)", 1)
            result = await sandbox.exec(["python3", "-I", "-c", waits], timeout=1)
            assert result.outcome is Outcome.timed_out
            assert _sleepers() == [] and (await sandbox.exec(["true"])).outcome is Outcome.succeeded

    boxes.run(work())


def test_signals_that_are_ignored_or_stopped_do_not_help(boxes: Boxes) -> None:
    for trick in ("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", "kill -STOP $$", "kill -STOP 0; sleep 60"):
        begun = time.monotonic()
        result = boxes.sh(trick, timeout=0.5)
        assert result.outcome is Outcome.timed_out and time.monotonic() - begun < 8


def test_the_clock_of_the_deadline_is_not_the_sandboxs(boxes: Boxes) -> None:
    async def work() -> tuple[Outcome, Outcome, float]:
        sandbox = boxes.driver.sandbox(boxes.spec(wall_seconds=1.0))
        await sandbox.start()
        begun = time.monotonic()
        result = await sandbox.exec(
            ["sh", "-c", "date -s 2001-01-01; hwclock --set --date 2001-01-01; sleep 60"], timeout=50
        )
        with pytest.raises(SandboxGone) as gone:
            await sandbox.exec(["true"])
        await sandbox.stop()
        return result.outcome, gone.value.outcome, time.monotonic() - begun

    outcome, later, seconds = boxes.run(work())
    assert (outcome, later) == (Outcome.timed_out, Outcome.timed_out) and seconds < 5


def test_what_is_read_and_taken_out_is_the_sandboxs_own(boxes: Boxes, tmp_path: Path) -> None:
    """Symbolic links, hard links, pipes and devices in the place of files."""
    script = """
echo fine > good; mkdir d; echo deep > d/deep; ln good hard
ln -s /etc/passwd link; ln -s /etc dir; ln -s ../../../../etc/hostname up; ln -s /proc/1/environ env
mkfifo pipe; ln -s /dev/zero zero; mkdir 'a b'; echo x > 'a b/..x'
"""

    async def work() -> tuple[list[str], bytes]:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            assert (await sandbox.exec(["sh", "-ec", script])).outcome is Outcome.succeeded
            names = await sandbox.collect(tmp_path / "out", ["*"])
            for path in ("pipe", "zero", "d"):
                with pytest.raises(OSError, match=r"regular|directory"):
                    await sandbox.read_file(path)
            return names, await sandbox.read_file("link")

    names, through_link = boxes.run(work())
    assert sorted(names) == ["a b/..x", "d/deep", "good", "hard"]
    out = [p for p in (tmp_path / "out").rglob("*") if p.is_symlink() or (p.is_file() and p.stat().st_nlink > 1)]
    assert not out and (tmp_path / "out/good").read_text() == "fine\n"
    assert through_link.startswith(b"root:x:0:0::/:\nsandbox")  # the sandbox's passwd, not this machine's


def test_a_link_in_the_place_of_a_file_to_be_written_leads_nowhere(boxes: Boxes, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")

    async def work() -> bytes:
        async with boxes.driver.sandbox(boxes.spec()) as sandbox:
            await sandbox.exec(["sh", "-c", f"ln -s {victim} answer; ln -s / root"])
            await sandbox.write_file("answer", b"new")
            with pytest.raises(OSError, match="Read-only"):
                await sandbox.write_file("root/etc/planted", b"new")
            return await sandbox.read_file("answer")

    assert boxes.run(work()) == b"new"
    assert victim.read_text() == "untouched"
