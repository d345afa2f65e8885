"""Pods as the engine's core sees them: start, status, stop, and a wait that wakes at every change.

Each pod is carried out by a supervisor of its own (`supervisor.py`), which outlives the engine. A pod
is known by its directory alone, so that a new `PodRunner` finds the pods of one that was killed:
`start` with the same spec takes up a pod that lives or has ended, and starts one that never came to
be. A pod whose supervisor was killed is Error, its processes are ended, and it is not started again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from posttrain.contract.record import ROOT
from posttrain.engine import isolation
from posttrain.engine.admission import memory_limits
from posttrain.engine.container import memory_prefix
from posttrain.engine.poddir import BELL, PodDirectory, ring
from posttrain.engine.podspec import PodSpec, PodStatus
from posttrain.engine.zygote import MESSAGE_BYTES
from posttrain.errors import UserError
from posttrain.isolation import cgroups, processes

LOST = "the pod's supervisor was killed; its processes were ended"
_CHECK_SECONDS = 1.0  # how often a supervisor that is nobody's child here is looked for


class PodRunner:
    """Runs pods below `pods`, a directory of the run that exists or can be made. One for an engine.

    `driver` is the isolation to use; by default what the machine allows.
    """

    def __init__(self, pods: str | Path, driver: isolation.Driver | None = None):
        self.pods = Path(pods)
        self.driver: isolation.Driver = driver or isolation.choose().driver
        self._zygote: subprocess.Popen | None = None
        self._line: socket.socket | None = None
        self._children: dict[str, PodSpec] = {}  # by directory: the pods whose end the zygote tells
        self._adopted: dict[str, PodSpec] = {}  # by directory: the pods that somebody else started
        self._rung: set[str] = set()
        self._checked = 0.0
        self.pods.mkdir(parents=True, exist_ok=True)
        bell = self.pods / BELL
        if not bell.exists():
            os.mkfifo(bell, 0o600)
        self._bell = os.open(bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self, spec: PodSpec) -> None:
        """Start the pod and return at once; a pod that already runs or has ended is taken up as it is.

        Raises UserError where its directory cannot be written.
        """
        pod = PodDirectory(spec.directory)
        try:
            os.makedirs(spec.directory, mode=0o700, exist_ok=True)
            lock = pod.lock()
            if lock is None:
                self._adopted[spec.directory] = spec
                return
            try:
                if pod.status() != PodStatus():
                    self._rung.add(spec.id)
                    return
                pod.reserve(lock)
                limits = memory_limits([spec.main, *spec.init, *spec.sidecars])
                spec = replace(spec, memory_limits=limits)
                with open(f"{spec.directory}/pod.json", "w", encoding="utf-8", opener=_private) as out:
                    json.dump(asdict(spec), out)
                self._send(spec.directory, lock)
                self._children[spec.directory] = spec
            finally:
                os.close(lock)
        except OSError as problem:
            raise UserError(
                f"cannot start pod {spec.name}: {problem.strerror}", field="run directory", value=spec.directory
            ) from None

    def status(self, directory: str) -> PodStatus:
        """The pod's status; of a pod whose supervisor was killed it is Error, and its processes are ended first."""
        pod = PodDirectory(directory)
        status = pod.status()
        if status.ended or pod.held() or not os.path.exists(f"{directory}/lock"):
            return status
        status = pod.status()  # it may have ended between the two looks
        return status if status.ended or pod.supervisor() is None else self._bury(pod)

    def stop(self, directory: str, grace: float) -> None:
        """SIGTERM to every container, SIGKILL to what is left after `grace` seconds. Returns at once."""
        pod = PodDirectory(directory)
        if not pod.held() and directory not in self._adopted:
            return
        pod.request_stop(grace)  # also heeded by a supervisor that has not got as far as to be found
        found = pod.supervisor()
        if found is not None:
            processes.send_exactly(*found, signal.SIGTERM)

    def kill(self, directory: str) -> None:
        """End every process of the pod now."""
        self.stop(directory, 0)

    def alive(self, directory: str) -> bool:
        """Whether a supervisor sees to the pod."""
        return PodDirectory(directory).held()

    def wait(self, timeout: float | None) -> set[str]:
        """Ids of pods whose status has changed, and words given to `wake`; empty after `timeout` seconds of nothing."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._rung:
            left = None if until is None else max(0.0, until - time.monotonic())
            if self._adopted:
                left = min(_CHECK_SECONDS, _CHECK_SECONDS if left is None else left)
            self._listen(left)
            self._look_for_adopted()
            if until is not None and time.monotonic() >= until:
                break
        rung, self._rung = self._rung, set()
        return rung

    def close(self) -> None:
        """Let go of everything; the pods go on."""
        if self._line is not None:
            self._line.close()
        if self._zygote is not None:
            self._zygote.wait()
        os.close(self._bell)

    def __enter__(self) -> PodRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, directory: str, lock: int) -> None:
        if self._line is None:
            self._begin()
        assert self._line is not None
        try:
            socket.send_fds(self._line, [directory.encode()], [lock])
        except (BrokenPipeError, ConnectionResetError):  # the zygote was killed
            self._hang_up()
            self._send(directory, lock)

    def _begin(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "posttrain.engine.zygote", str(theirs.fileno()), self.driver]
            self._zygote = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    def _hang_up(self) -> None:
        """The zygote is gone: its pods go on, and are looked for from now on."""
        assert self._line is not None and self._zygote is not None
        self._line.close()
        self._zygote.wait()
        self._line = self._zygote = None
        self._adopted |= self._children
        self._children = {}
        self._checked = 0.0

    def _listen(self, timeout: float | None) -> None:
        sources = [self._bell] if self._line is None else [self._bell, self._line.fileno()]
        poll = select.poll()  # select() stops at descriptor 1023
        for source in sources:
            poll.register(source, select.POLLIN)
        ready = [handle for handle, _ in poll.poll(None if timeout is None else timeout * 1000)]
        if self._bell in ready:
            self._rung.update(os.read(self._bell, 1 << 16).decode().split())
        if len(ready) > (self._bell in ready):
            self._hear_zygote()

    def _hear_zygote(self) -> None:
        assert self._line is not None
        try:
            message = self._line.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            message = b""
        if not message:
            self._hang_up()
            return
        directory, _, reason = message.decode().partition("\0")
        spec = self._children.pop(directory, None)
        if spec is not None and (reason or not PodDirectory(directory).status().ended):
            self._bury(PodDirectory(directory), reason)
            self._rung.add(spec.id)

    def _look_for_adopted(self) -> None:
        """Pods that nobody holds any more have ended, or never came to be: whoever was to start them died before."""
        now = time.monotonic()
        if self._adopted and now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            for directory in [d for d in self._adopted if not PodDirectory(d).held()]:
                spec = self._adopted.pop(directory)
                if self.status(directory) == PodStatus():
                    self.start(spec)
                else:
                    self._rung.add(spec.id)

    def _bury(self, pod: PodDirectory, reason: str = "") -> PodStatus:
        """End what a killed supervisor left, and say so in the pod's status."""
        lock = pod.lock()
        if lock is None:
            return pod.status()  # another engine is at it
        try:
            status = pod.status()
            if not status.ended:
                processes.sweep(pod.path)
                cgroups.remove_all(memory_prefix(pod.path))
                pod.clear()
                message = reason or pod.full_disk() or LOST
                status = replace(status, phase="Error", message=message, ready=False, finished=time.time())
                pod.write_status(status, os.path.basename(pod.path))
            return status
        finally:
            os.close(lock)


def wake(pods: str | Path, word: str) -> None:
    """Make the engine's `wait` at the directory `pods` return, with `word` among what it gives (an order, say)."""
    ring(pods, word)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # a spec may hold what a secret was resolved to
