"""A loopback address for each pod, on a network that all share.

In a cluster two pods may listen on one port, and the containers of a pod meet at localhost. Here all
pods share the host's network, as a namespace for each would need privileges and cut them off from
services of the host. So the supervisor is asked, by seccomp's user notification, about `bind` and
`connect` of its pod: a TCP socket that would listen at 0.0.0.0 or localhost on a stated port listens
at the pod's own address 127.x.y.z, and a connection to localhost goes there where the pod listens on
that port. All else is left to the kernel, and where seccomp is refused everything is.

Deciding (`redirect`) is pure; the calls are carried out on a duplicate of the caller's socket, so
that what was decided about is what is done.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import queue
import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ARCHITECTURES = {  # AUDIT_ARCH, then the numbers of seccomp, bind, connect
    "x86_64": (0xC000003E, 317, 49, 42),
    "aarch64": (0xC00000B7, 277, 200, 203),
}
_PIDFD_GETFD = 438
_SET_MODE_FILTER, _NEW_LISTENER, _NO_NEW_PRIVILEGES = 1, 8, 38
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # struct seccomp_notif of 80 bytes, seccomp_notif_resp of 24
_CONTINUE = 1
_libc = ctypes.CDLL(None, use_errno=True)

Address = tuple[str, int]


@dataclass(frozen=True)
class Redirect:
    """Where a call goes instead. `listens` is the port that the pod then listens on."""

    address: Address
    listens: int | None = None


def redirect(call: str, address: Address, ip: str, listening: set[int], *, only_v6: bool = False) -> Redirect | None:
    """What becomes of `bind` or `connect` of a TCP socket at `address`; None leaves it as it is.

    `ip` is the pod's address, `listening` the ports that were moved there before. A socket that takes
    IPv6 only cannot listen at an IPv4 address: it is given a port of ::1 that nobody asks for, and the
    IPv4 socket that a server opens beside it stands for both.
    """
    host, port = ipaddress.ip_address(address[0]), address[1]
    v6 = host.version == 6
    plain = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped else host
    local = plain.is_unspecified or str(plain) in ("127.0.0.1", "::1")
    if not local or port == 0:
        return None
    own = f"::ffff:{ip}" if v6 else ip
    if call == "bind":
        return Redirect(("::1", 0)) if v6 and only_v6 else Redirect((own, port), port)
    return Redirect((own, port)) if port in listening and not only_v6 else None


class Gate:
    """Answers, in a thread that is not filtered, the `bind` and `connect` of what the caller's starts from now on.

    The caller's own thread and those it starts are filtered too, and are answered like a container's.
    """

    def __init__(self, ip: str):
        self._ip, self._listening = ip, set[int]()
        installed: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=lambda: self._serve(installed.get()), daemon=True).start()
        self._listener = _install()
        installed.put(self._listener)

    def _serve(self, listener: int) -> None:
        if listener < 0:
            return  # refused: what the pod does with its sockets is left to the kernel
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while True:
            poll.poll()
            notification = bytearray(80)
            try:
                fcntl.ioctl(listener, _RECEIVE, notification)
            except OSError:
                continue  # the caller was killed meanwhile
            id, pid, _flags, number, _arch, _at, *arguments = struct.unpack("=QIIiIQ6Q", notification)
            try:
                self._answer(id, pid, number, arguments)
            except (OSError, ValueError, OverflowError, struct.error):
                self._reply(id, flags=_CONTINUE)  # not ours to decide: the caller gets the kernel's own answer

    def _answer(self, id: int, pid: int, number: int, arguments: list[int]) -> None:
        """Raises OSError where the caller or its socket has gone."""
        call = "bind" if number == _ARCHITECTURES[platform.machine()][2] else "connect"
        handle, where, length = arguments[0] & 0xFFFFFFFF, arguments[1], arguments[2] & 0xFFFFFFFF
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(where)
            address = _unpack(memory.read(min(length, 28)))
        if address is None:
            self._reply(id, flags=_CONTINUE)
            return
        with _socket_of(pid, handle) as theirs:
            if theirs.type != socket.SOCK_STREAM:
                self._reply(id, flags=_CONTINUE)
                return
            v6 = theirs.family == socket.AF_INET6
            only_v6 = v6 and bool(theirs.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
            changed = redirect(call, address, self._ip, self._listening, only_v6=only_v6)
            if changed is None:
                self._reply(id, flags=_CONTINUE)
                return
            if call == "connect":  # which may wait for the listener, and that for us
                threading.Thread(target=self._connect, args=(id, theirs.dup(), changed.address), daemon=True).start()
                return
            try:
                theirs.bind(changed.address)
            except OSError as problem:
                self._reply(id, error=problem.errno or errno.EINVAL)
                return
            if changed.listens is not None:
                self._listening.add(changed.listens)
            self._reply(id)

    def _connect(self, id: int, theirs: socket.socket, address: Address) -> None:
        """Connect for the caller; where nobody listens there any more the kernel tries what was asked for."""
        with theirs:
            code = theirs.connect_ex(address)
        if code == errno.ECONNREFUSED:
            self._reply(id, flags=_CONTINUE)
        else:
            self._reply(id, error=code)

    def _reply(self, id: int, *, error: int = 0, flags: int = 0) -> None:
        with suppress(OSError):  # the caller was killed meanwhile
            fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", id, 0, -error, flags))


def _install() -> int:
    """Filter this thread; the descriptor that is told of its calls, below zero where that is refused."""
    if platform.machine() not in _ARCHITECTURES:
        return -1
    architecture, seccomp, bind, connect = _ARCHITECTURES[platform.machine()]
    program = [
        (0x20, 0, 0, 4), (0x15, 0, 3, architecture),  # another architecture's calls are none of ours
        (0x20, 0, 0, 0), (0x15, 2, 0, bind), (0x15, 1, 0, connect),
        (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY),
    ]  # fmt: skip
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # without it a filter takes a privilege; bubblewrap sets it too
    return _libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.c_char_p(header))


def _socket_of(pid: int, handle: int) -> socket.socket:
    """A duplicate of the descriptor `handle` of the thread `pid`. Its blocking mode is the caller's own."""
    status = Path(f"/proc/{pid}/status").read_text()
    process = os.pidfd_open(int(status.partition("Tgid:")[2].split()[0]))
    try:
        duplicate = _libc.syscall(_PIDFD_GETFD, process, handle, 0)
    finally:
        os.close(process)
    if duplicate < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=duplicate)


def _unpack(raw: bytes) -> Address | None:
    """The address in a sockaddr of IPv4 or IPv6; None for another family."""
    family = struct.unpack_from("H", raw)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8]), struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, raw[8:24]), struct.unpack_from("!H", raw, 2)[0]
    return None
