"""The process that starts everything inside sandboxes: small, with an empty environment, one for a driver.

    worker (asyncio) ── requests, descriptors ──> launcher ── fork ──> bubblewrap (one for each sandbox)
                     <── events ────────────────           └─ fork ──> a call, which enters the sandbox

A call is a fork of this process that joins the sandbox's cgroups and namespaces, gives up every
capability, takes the seccomp filter and becomes the command: nothing of ours runs inside that the code
there could take hold of, and a command costs a fork and not an interpreter's start.

Invariants: when the worker goes (its end of the socket closes) every sandbox is ended and its groups
removed before this process ends; when this process is killed, bubblewrap and the calls die with it by
the kernel's hand (PR_SET_PDEATHSIG), and only empty groups are left, which `reap` finds by their name.
It opens no file of a sandbox by a path that the sandbox could have turned into a link.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from posttrain.isolation import processes
from posttrain.isolation.cgroups import Group, Limits, hierarchies
from posttrain.isolation.launcher import entering, inside
from posttrain.isolation.launcher.sources import Sources

FIRST = 10  # the descriptor that the first of those sent along becomes in bubblewrap
_MAX_DESCRIPTORS = 64
_SWEEP_SECONDS = 5.0

JSON = dict[str, Any]


@dataclass
class _Sandbox:
    """`first` is a pidfd of its pid 1 once it is there, `owner` the user namespace that owns its `process_ids`."""

    id: str
    group: Group
    bubblewrap: int
    info: int
    ready: int
    said: bytes = b""
    first: int = -1
    process_ids: int = -1
    owner: int = -1
    stopping: bool = False
    calls: dict[str, int] = field(default_factory=dict)


@dataclass
class _Call:
    sandbox: _Sandbox
    id: str
    pid: int
    tracked: bool
    oom_kills: int


class Launcher:
    def __init__(
        self, line: socket.socket, uid: int, prefix: str, filter: bytes, program: int, libraries: list[int]
    ):  # fmt: skip
        self._line, self._uid, self._prefix = line, uid, prefix
        self._filter, self._program, self._libraries = filter, program, libraries
        self._sources = Sources()
        self._between = os.geteuid() != 0  # whether a process of ours stands between this one and a command
        self._own_process_ids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._sandboxes: dict[str, _Sandbox] = {}
        self._calls: dict[int, _Call] = {}
        self._selector = selectors.DefaultSelector()
        self._closed = False

    def serve(self) -> None:
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._line, selectors.EVENT_READ, self._receive)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        while not self._closed:
            for key, _ in self._selector.select():
                key.data()
            self._reap()
        for sandbox in list(self._sandboxes.values()):
            self._stop(sandbox)
        while self._sandboxes or self._calls:
            self._reap(wait=True)
        signal.set_wakeup_fd(-1)

    # -- requests

    def _receive(self) -> None:
        try:
            message, handles, *_ = socket.recv_fds(self._line, 64, _MAX_DESCRIPTORS)
        except ConnectionResetError:
            message, handles = b"", []
        if not message:
            self._selector.unregister(self._line)
            self._closed = True
            return
        body, *handles = handles
        request = json.loads(os.pread(body, os.fstat(body).st_size, 0))
        os.close(body)
        try:
            getattr(self, f"_do_{request['do']}")(request, handles)
        except Exception as problem:
            self._say(request, event="refused", detail=_words(problem))
        finally:
            for handle in handles:
                os.close(handle)

    def _say(self, request: JSON, **event: Any) -> None:
        with contextlib.suppress(OSError):  # the worker has gone: the next read ends this process
            self._line.send(json.dumps({"id": request["id"], **event}).encode())

    def _do_start(self, request: JSON, handles: list[int]) -> None:
        argv = [each if isinstance(each, str) else self._sources.reach(each["source"]) for each in request["argv"]]
        limits = Limits(**request["limits"])
        group = Group(f"{self._prefix}{request['id']}", limits, calls=True)
        info, info_w = os.pipe2(os.O_CLOEXEC)
        ready, ready_w = os.pipe2(os.O_CLOEXEC)
        stdin, stderr, *further = handles
        try:
            pid = group.fork()
            if pid == 0:
                self._become_bubblewrap(request, argv, group, [stdin, ready_w, stderr], [info_w, *further])
        except OSError:
            group.remove()
            os.close(info)
            os.close(ready)
            raise
        finally:
            os.close(info_w)
            os.close(ready_w)
        sandbox = _Sandbox(request["id"], group, pid, info, ready)
        self._sandboxes[sandbox.id] = sandbox
        self._selector.register(info, selectors.EVENT_READ, lambda: self._learn(sandbox))
        self._selector.register(ready, selectors.EVENT_READ, lambda: self._ready(sandbox))

    def _become_bubblewrap(
        self, request: JSON, argv: list[str], group: Group, standard: list[int], further: list[int]
    ) -> None:
        """In the child. bubblewrap is told of descriptors by number: the pipe for its report is FIRST."""
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            group.join()
            entering.offer_to_the_oom_killer()
            numbered = {FIRST + index: handle for index, handle in enumerate([*further, *self._libraries])}
            preload = ":".join(f"/proc/self/fd/{number}" for number in list(numbered)[len(further) :])
            (program,) = entering.place(standard, numbered, [self._program])
            entering.give_up_root(self._uid)
            entering.die_with_parent()
            entering.limit(request["rlimits"])
            os.execve(program, argv, {"LD_PRELOAD": preload} if preload else {})
        except BaseException as problem:
            os.write(2, f"{_words(problem)}\n".encode())
        finally:
            os._exit(1)

    def _learn(self, sandbox: _Sandbox) -> None:
        if sandbox.info < 0:
            return  # the other pipe, heard of at the same time, came first
        data = os.read(sandbox.info, 4096)
        sandbox.said += data
        if data and b"}" not in sandbox.said:
            return
        self._forget(sandbox, "info")
        if not data:
            return
        pid = json.loads(sandbox.said)["child-pid"]
        with contextlib.suppress(OSError):
            found = (os.pidfd_open(pid), *entering.process_ids_of(pid))
            if entering.parent_of(pid) == sandbox.bubblewrap:
                sandbox.first, sandbox.process_ids, sandbox.owner = found
            else:  # it has gone, and its number to another
                for handle in found:
                    os.close(handle)

    def _ready(self, sandbox: _Sandbox) -> None:
        """Its shell has said a word, so that all mounts are made; or it has ended, which will be told."""
        data = os.read(sandbox.ready, 16)
        self._forget(sandbox, "ready")
        if not data:
            return
        if sandbox.info >= 0:
            self._learn(sandbox)
        if sandbox.first >= 0:
            self._say({"id": sandbox.id}, event="ready")

    def _forget(self, sandbox: _Sandbox, pipe: str) -> None:
        handle = getattr(sandbox, pipe)
        if handle >= 0:
            self._selector.unregister(handle)
            os.close(handle)
            setattr(sandbox, pipe, -1)

    def _do_call(self, request: JSON, handles: list[int]) -> None:
        sandbox = self._sandboxes.get(request["sandbox"])
        if sandbox is None or sandbox.first < 0 or sandbox.stopping:
            self._say(request, event="refused", detail="the sandbox has ended")
            return
        tracked = bool(request.get("command")) and sandbox.group.open_call(request["id"])
        before = sandbox.group.oom_kills()
        pid = self._fork_into(sandbox, request["id"] if tracked else "")
        if pid == 0:
            self._become_call(sandbox, request, handles, tracked)
        sandbox.calls[request["id"]] = pid
        self._calls[pid] = _Call(sandbox, request["id"], pid, tracked, before)

    def _fork_into(self, sandbox: _Sandbox, part: str) -> int:
        """Fork into the sandbox's process ids; without root's right to, the child will have to fork once more."""
        if self._between:
            return sandbox.group.fork(part)
        entering.choose_process_ids(sandbox.process_ids)
        try:
            pid = sandbox.group.fork(part)
        except OSError:
            entering.choose_process_ids(self._own_process_ids)
            raise
        if pid:
            entering.choose_process_ids(self._own_process_ids)
        return pid

    def _become_call(self, sandbox: _Sandbox, request: JSON, handles: list[int], tracked: bool) -> None:
        """In the child, which enters the sandbox."""
        try:
            signal.set_wakeup_fd(-1)
            sandbox.group.join(request["id"] if tracked else "")
            entering.offer_to_the_oom_killer()
            numbered = {3 + index: handle for index, handle in enumerate(handles[3:])}
            owner, first = entering.place(handles[:3], numbered, [sandbox.owner, sandbox.first])
            entering.give_up_root(self._uid)
            entering.die_with_parent()
            entering.join(owner, first, process_ids=self._between)
            if self._between:
                entering.fork_and_pass_on()
            os.setsid()
            entering.join_users(first)
            entering.drop_capabilities()
            entering.limit(request["rlimits"])
            if request.get("command"):
                entering.run(request, self._filter)
            entering.confine(self._filter)
            inside.act(request)
        except BaseException as problem:
            with contextlib.suppress(OSError):
                os.write(2, f"{_words(problem)}\n".encode())
        finally:
            os._exit(entering.BROKEN)

    def _do_signal(self, request: JSON, _: list[int]) -> None:
        """A signal to the call's processes; with `below` its command itself is spared. SIGKILL without it ends all."""
        sandbox = self._sandboxes.get(request["sandbox"])
        pid = sandbox.calls.get(request["call"]) if sandbox else None
        if sandbox is None or pid is None:
            return
        tracked = self._calls[pid].tracked
        number, below = request["number"], request["below"]
        if number == signal.SIGKILL and not below:
            if tracked:
                sandbox.group.kill_call(request["call"])
            else:
                self._sweep(sandbox, pid)
            processes.send(pid, signal.SIGKILL)
            return
        spared = {pid} if self._between else set()
        if below:
            spared |= self._commands(pid)
        for each in sandbox.group.members(request["call"]) if tracked else [pid, *processes.descendants(pid)]:
            if each not in spared:
                processes.send(each, number)

    def _commands(self, pid: int) -> set[int]:
        """The command of a call, by its pid here; none where it has ended or not begun."""
        return set(processes.children(pid)) if self._between else {pid}

    def _sweep(self, sandbox: _Sandbox, pid: int) -> None:
        """Without a group to tell a call's processes by: those below it, and those of its session that have lost
        their parents. What has begun a session of its own and lost its parents too goes with the sandbox."""
        sessions, until = self._commands(pid), time.monotonic() + _SWEEP_SECONDS
        for each in sessions:
            processes.send(each, signal.SIGSTOP)
        while time.monotonic() < until:
            orphans = [p for p in processes.descendants(sandbox.bubblewrap) if processes.session_of(p) in sessions]
            found = [*processes.descendants(pid), *orphans]
            if not found:
                return
            for each in found:
                processes.send(each, signal.SIGSTOP)  # first, so that none starts another meanwhile
            for each in found:
                processes.send(each, signal.SIGKILL)

    def _do_stop(self, request: JSON, _: list[int]) -> None:
        sandbox = self._sandboxes.get(request["sandbox"])
        if sandbox is not None:
            self._stop(sandbox)

    def _stop(self, sandbox: _Sandbox) -> None:
        """Its pid 1 goes, and with it, by the kernel's hand, every process of its namespace and every mount."""
        sandbox.stopping = True
        if sandbox.first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(sandbox.first, signal.SIGKILL)
        else:
            processes.send(sandbox.bubblewrap, signal.SIGKILL)
        for pid in sandbox.calls.values():
            processes.send(pid, signal.SIGKILL)

    # -- ends

    def _reap(self, *, wait: bool = False) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            wait = False
            code = os.waitstatus_to_exitcode(status)
            if pid in self._calls:
                self._end_call(self._calls.pop(pid), code)
            elif sandbox := next((s for s in self._sandboxes.values() if s.bubblewrap == pid), None):
                self._end_sandbox(sandbox)

    def _end_call(self, call: _Call, code: int) -> None:
        call.sandbox.calls.pop(call.id)
        oom = call.sandbox.group.oom_kills() > call.oom_kills
        if call.tracked:
            call.sandbox.group.close_call(call.id)
        self._say({"id": call.id}, event="ended", code=code if code >= 0 else 128 - code, oom=oom)
        self._clear(call.sandbox)

    def _end_sandbox(self, sandbox: _Sandbox) -> None:
        sandbox.bubblewrap = -1
        for pid in sandbox.calls.values():
            processes.send(pid, signal.SIGKILL)
        self._clear(sandbox)

    def _clear(self, sandbox: _Sandbox) -> None:
        """Once bubblewrap and every call have gone, the group goes and the end is told."""
        if sandbox.bubblewrap >= 0 or sandbox.calls or sandbox.id not in self._sandboxes:
            return
        del self._sandboxes[sandbox.id]
        oom = sandbox.group.oom_kills() > 0
        for pipe in ("info", "ready"):
            self._forget(sandbox, pipe)
        for handle in (sandbox.first, sandbox.process_ids, sandbox.owner):
            if handle >= 0:
                os.close(handle)
        sandbox.group.remove()
        self._say({"id": sandbox.id}, event="gone", oom=oom)


def _words(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    return traceback.format_exc().strip()


def main() -> None:
    """Arguments: the line's descriptor, root's other user, prefix of names, filter, bubblewrap, its libraries."""
    line, uid, prefix, filter, program, *libraries = sys.argv[1:]
    # A command whose call was killed comes to us: were it left to an init that reaps late, its sandbox would not end.
    processes.adopt_orphans()
    entering.default_signals_when_executed()
    hierarchies()
    inside.warm_up()
    gc.collect()
    gc.disable()  # a collection in a fork would copy every page of ours
    filter_bytes = os.pread(int(filter), 1 << 20, 0)
    own = socket.socket(fileno=int(line))
    Launcher(own, int(uid), prefix, filter_bytes, int(program), [int(handle) for handle in libraries]).serve()
