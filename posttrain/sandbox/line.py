"""The worker's end of the line to its launcher: requests out, events in.

Invariant: each request that is answered is answered once; when the launcher has gone every question that is
open, and every later one, ends in SandboxGone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from posttrain.contract.record import ROOT
from posttrain.isolation import bubblewrap, cgroups
from posttrain.isolation.processes import start_time
from posttrain.sandbox.protocol import SandboxGone

Event = dict[str, Any]
_GONE = "the launcher of sandboxes was killed"


def prefix_of(pid: int) -> str:
    """How the names of a worker's groups begin: by its pid and when it started, so that one that has gone is known."""
    return f"posttrain-sandbox-{pid}-{start_time(pid)}-"


class Line:
    """Starts the launcher. To be made, used and closed in one running event loop."""

    def __init__(self, *, uid: int, program: str, filter: bytes):
        self._loop = asyncio.get_running_loop()
        self.prefix = prefix_of(os.getpid())
        self._numbers = itertools.count(1)
        self._handlers: dict[str, Callable[[Event], None]] = {}
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._line, theirs):  # so that neither ever waits for the other to read
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        opened = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        bpf = memory(filter, "seccomp")
        libraries = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in bubblewrap.libraries(program)]
        arguments = [theirs.fileno(), uid, self.prefix, bpf, opened, *libraries]
        command = [sys.executable, "-E", "-S", "-m", "posttrain.isolation.launcher", *map(str, arguments)]
        # An empty environment: nothing of ours can be found in a process that stands beside a sandbox's.
        self.process = subprocess.Popen(
            command, env={}, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno(), bpf, opened, *libraries],
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        for handle in (bpf, opened, *libraries):
            os.close(handle)
        self._loop.add_reader(self._line, self._hear)

    def new_id(self) -> str:
        return f"{next(self._numbers)}"

    def ask(self, request: Event, handles: Sequence[int] = (), heard: Callable[[Event], None] | None = None) -> None:
        """Send a request; events under its id are given to `heard` until it is told `forget`."""
        if self.lost:
            raise SandboxGone(_GONE)
        if heard is not None:
            self._handlers[request["id"]] = heard
        body = memory(json.dumps(request).encode(), "request")
        try:
            socket.send_fds(self._line, [b"?"], [body, *handles])
        except (BrokenPipeError, ConnectionResetError):
            self._lose()
            raise SandboxGone(_GONE) from None
        finally:
            os.close(body)

    def forget(self, id: str) -> None:
        self._handlers.pop(id, None)

    @property
    def lost(self) -> bool:
        return self._line.fileno() < 0

    async def close(self) -> None:
        """The launcher ends what is left, and itself."""
        if not self.lost:
            self._loop.remove_reader(self._line)
            self._line.close()
        await asyncio.to_thread(self.process.wait)

    def _hear(self) -> None:
        while True:
            try:
                message = self._line.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                self._lose()
                return
            event = json.loads(message)
            handler = self._handlers.get(event["id"])
            if handler is not None:
                handler(event)

    def _lose(self) -> None:
        if self.lost:
            return
        self._loop.remove_reader(self._line)
        self._line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        for path in cgroups.left(self.prefix):
            cgroups.destroy(path)
        for handler in list(self._handlers.values()):
            handler({"event": "lost", "detail": _GONE})


def memory(data: bytes, name: str) -> int:
    """A file in memory that holds `data`, to be read from its beginning."""
    handle = os.memfd_create(name, os.MFD_CLOEXEC)
    os.truncate(handle, len(data))
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], written)
    return handle
