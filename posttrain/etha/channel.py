"""Control channels between a source and a destination: who writes into which window, what is complete, what is damaged.

A socket each, so that the end of one side is known to the other at once. Both prove that they know the destination's
key before anything is said (HMAC, by multiprocessing.connection); nothing that arrives is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import TypeVar

import msgspec

from posttrain.errors import UserError
from posttrain.etha.transports.base import Transport
from posttrain.etha.wire import Address, FromSource

T = TypeVar("T")
Broken = (EOFError, OSError, msgspec.DecodeError)  # what a channel raises once the other side is gone
_BACKLOG = 128
_LONGEST = 1 << 26  # bytes of a message


class Channel:
    """Messages of ../wire.py over a connection, which a transport may use in between."""

    def __init__(self, connection: Connection):
        self.connection = connection

    def send(self, message: msgspec.Struct) -> None:
        self.connection.send_bytes(msgspec.msgpack.encode(message))

    def receive(self, kind: type[T]) -> T:
        """The next message. Raises one of `Broken` where there is none any more, or another one."""
        return msgspec.msgpack.decode(self._next(), type=kind)

    def from_source(self) -> FromSource:
        """The next message of a source. Raises one of `Broken`."""
        return msgspec.msgpack.decode(self._next(), type=FromSource)

    def _next(self) -> bytes:
        return self.connection.recv_bytes(_LONGEST)

    def cut(self) -> None:
        """End the channel from any thread: whoever reads from it, here or there, reads the end."""
        # It may have ended by itself.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()


class Door:
    """Where a destination takes its sources' channels. `host` is its address for other hosts."""

    def __init__(self, transport: Transport, host: str):
        key = secrets.token_hex(16)
        # An abstract name lives and ends with the socket: no file is left behind, and none is needed.
        unix = transport.family == "AF_UNIX"
        place = f"\0posttrain-etha-{secrets.token_hex(8)}" if unix else (host, 0)
        try:
            self._listener = Listener(place, family=transport.family, backlog=_BACKLOG)
        except OSError as problem:
            why = str(problem.strerror or problem).lower()
            raise UserError(f"cannot be listened on: {why}", field="host", value=host) from None
        self._key = key.encode()
        self.address = Address(transport.name, place if isinstance(place, str) else self._listener.address, key)

    def accept(self) -> Connection:
        """The next one that knocks, who has proved nothing yet. Raises OSError once the door is closed."""
        return self._listener.accept()

    def admit(self, connection: Connection) -> Channel:
        """Raises AuthenticationError or one of `Broken`."""
        deliver_challenge(connection, self._key)
        answer_challenge(connection, self._key)
        return Channel(connection)

    def close(self) -> None:
        # A thread that waits in accept() is not woken by closing, but by a last caller.
        with contextlib.suppress(OSError):
            Client(self._listener.address).close()
        self._listener.close()


def call(address: Address) -> Channel:
    """A channel to a destination. Raises AuthenticationError or one of `Broken`."""
    place = address.place if isinstance(address.place, str) else (address.place[0], address.place[1])
    return Channel(Client(place, authkey=address.key.encode()))
