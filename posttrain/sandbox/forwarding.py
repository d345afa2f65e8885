"""The only ways out of a sandbox that has one: to the gateway, or through a proxy to a list of addresses.

The sandbox's network namespace has a loopback and nothing else. A socket that listens there was made inside
and handed out over a Unix socket (`inside`), so the worker accepts what is connected to it, and nothing of
ours runs inside. Deciding (`allowed`) is pure.

Invariant: an address of this machine or of a private network is reached only where the list names it as it is,
so a name on the list that is made to point there leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence

import h11

from posttrain.sandbox.layout import GATEWAY_PORT, PROXY_PORT
from posttrain.sandbox.spec import Network, NetworkPolicy

_CHUNK = 1 << 16
_CONNECT_SECONDS = 30.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def allowed(host: str, port: int, entries: Sequence[str]) -> bool:
    """Whether `host:port` is on the list; `*.name` stands for every name below it."""
    for entry in entries:
        name, _, number = entry.rpartition(":")
        if int(number) != port:
            continue
        if name.lower() == host.lower() or (name.startswith("*.") and host.lower().endswith(name[1:].lower())):
            return True
    return False


def reachable(host: str, found: Sequence[str]) -> list[str]:
    """Of the addresses that a listed `host` has, those that may be connected to: public ones, or the one it spells."""
    return [address for address in found if ipaddress.ip_address(address).is_global or address == host.strip("[]")]


class Forwarding:
    """Serves one sandbox. `gateway` is host:port or unix:/path."""

    def __init__(self, policy: NetworkPolicy, gateway: str):
        self._policy, self._gateway = policy, gateway
        self.port = GATEWAY_PORT if policy.mode is Network.gateway else PROXY_PORT
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task] = set()

    async def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=listener)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if self._policy.mode is Network.gateway:
                await _join((reader, writer), await self._connect_gateway())
            else:
                await self._proxy(reader, writer)
        except (OSError, h11.RemoteProtocolError, TimeoutError):
            pass  # either side has gone: the other learns it by the end of its stream
        finally:
            self._open.discard(task)
            writer.close()

    async def _connect_gateway(self) -> Streams:
        if self._gateway.startswith("unix:"):
            return await asyncio.open_unix_connection(self._gateway.removeprefix("unix:"))
        host, _, port = self._gateway.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        if not isinstance(event, h11.Request):
            return
        if event.method != b"CONNECT":
            return _answer(connection, writer, 405, "only CONNECT is served: use https")
        host, _, port = event.target.decode("ascii", "replace").rpartition(":")
        if not port.isdigit() or not allowed(host, int(port), self._policy.allow):
            return _answer(connection, writer, 403, f"{host}:{port} is not on the sandbox's list")
        try:
            remote = await self._connect(host, int(port))
        except (OSError, TimeoutError):
            return _answer(connection, writer, 502, f"{host}:{port} does not answer")
        writer.write(connection.send(h11.Response(status_code=200, headers=[])) or b"")
        early, _ = connection.trailing_data
        remote[1].write(early)
        await _join((reader, writer), remote)

    async def _connect(self, host: str, port: int) -> Streams:
        plain = host.strip("[]")
        found = await asyncio.get_running_loop().getaddrinfo(plain, port, type=socket.SOCK_STREAM)
        addresses = reachable(host, list(dict.fromkeys(str(info[4][0]) for info in found)))
        if not addresses:
            raise OSError("no address that may be reached")
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(addresses[0], port)


def _answer(connection: h11.Connection, writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [("content-length", str(len(body))), ("content-type", "text/plain"), ("connection", "close")]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")


async def _join(one: Streams, other: Streams) -> None:
    """Carry bytes both ways until both directions have ended."""
    try:
        await asyncio.gather(_carry(one[0], other[1]), _carry(other[0], one[1]))
    finally:
        other[1].close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
