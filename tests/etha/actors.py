"""What each process of a world does: the coordinator, a source rank, a rank of a replica. See worlds.py."""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.etha import formats
from posttrain.etha.coordinator.service import create_app
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.layout import Placed, SourceLayout, describe
from posttrain.etha.publisher import Publisher
from posttrain.etha.receiver import Receiver
from posttrain.etha.slices import Want
from posttrain.etha.transports import named
from posttrain.etha.transports.base import Remote, Runs, Transport, Window
from posttrain.service import serve
from tests.etha.moves import expected, filled, locals_of

torch.set_num_threads(1)
Shapes = Mapping[str, Placed]


def weights(placed: Shapes, version: int) -> dict[str, Tensor]:
    """The whole tensors of a version: other elements for each."""
    return {n: filled(p.shape, p.dtype, zlib.crc32(f"{n}@{version}".encode())) for n, p in placed.items()}


def run_coordinator(settings: dict[str, Any], port: int) -> None:
    app = create_app(CoordinatorSettings(**settings))
    serve(app, host="127.0.0.1", port=port, on_stop=app.state.server.close_waits, field="port")


def run_source(
    orders: Connection, url: str, placed: Shapes, aliases: Mapping[str, str], rank: int, ranks: int,
    transport: str, at: str, options: dict[str, Any],
) -> None:  # fmt: skip
    """Pushes the versions that `orders` name, and answers with what came of it."""
    whole = describe(placed, ranks, aliases)
    layout = SourceLayout(whole.specs, (whole.ranks[rank],), whole.aliases)
    tensors = {n: t.clone() for n, t in locals_of(weights(placed, 0), placed, ranks)[rank].items()}
    stopping = Stopping(named(transport), at, orders)
    publisher = Publisher(url, layout, tensors, rank=rank, ranks=ranks, transport=stopping, **options)
    publisher.start()
    orders.send("ready")
    for what, version in stopping.orders():
        for name, local in locals_of(weights(placed, version), placed, ranks)[rank].items():
            tensors[name].copy_(local)
        try:
            orders.send((what, publisher.push(version, timeout=60, until="serving")))
        except UserError as problem:
            orders.send((what, str(problem)))


def run_rank(
    orders: Connection, url: str, placed: Shapes, aliases: Mapping[str, str], replica: str, rank: int, ranks: int,
    wants: tuple[Want, ...], transport: str, at: str,
) -> None:  # fmt: skip
    """Tells ("applied", version, the wants whose bytes are not the reference's)."""
    stopping = Stopping(named(transport), at, orders)

    def apply(version: int, tensors: Mapping[Want, Tensor]) -> None:
        stopping.at("apply")
        reference = weights(placed, version)
        wrong = [
            want for want, tensor in tensors.items()
            if not same(tensor, want, reference[aliases.get(want.name, want.name)])
        ]  # fmt: skip
        orders.send(("applied", version, wrong if set(tensors) == set(wants) else "not all"))

    receiver = Receiver(url, replica=replica, rank=rank, ranks=ranks, wants=wants, apply=apply, transport=stopping)
    receiver.start()
    orders.send("ready")
    for _ in stopping.orders():
        pass


def same(tensor: Tensor, want: Want, whole: Tensor) -> bool:
    reference = formats.decode(expected(whole, want), want.format, want.box.shape)
    words = [t.contiguous().reshape(-1).view(torch.uint8) for t in (tensor, reference)]
    return torch.equal(*words)


class Stopping(Transport):
    """A transport that says where it is and goes no further at one place, for a test to kill its process there, or
    that damages a bucket on its way (at the places "damage" and "damage always")."""

    def __init__(self, inner: Transport, place: str, connection: Connection):
        self._inner, self._place, self._connection = inner, place, connection
        self.name, self.family, self.device = inner.name, inner.family, inner.device
        self._damaged = self._flushed = 0
        self._may_go_on = threading.Event()
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def orders(self) -> Iterator[Any]:
        """What the test asks for, until it ends."""
        yield from iter(self._orders.get, None)

    def _listen(self) -> None:
        while True:
            try:
                order = self._connection.recv()
            except EOFError:
                self._orders.put(None)
                return
            if order[0] == "stop at":
                self._place, self._flushed = order[1], 0
                self._may_go_on.clear()
                self._connection.send("will stop")
            elif order[0] == "go on":
                self._may_go_on.set()
            else:
                self._orders.put(order)

    def at(self, place: str) -> None:
        if place == self._place:
            self._place = ""
            self._connection.send(("at", place))
            self._may_go_on.wait()

    def window(self, nbytes: int) -> Window:
        self.at("window")
        return _Window(self, self._inner.window(nbytes))

    def open(self, control: Connection) -> Remote:
        self.at("open")
        return _Remote(self, self._inner.open(control))

    def digest(self, memory: Tensor, runs: Runs) -> int:
        self.at("digest")
        return self._inner.digest(memory, runs)

    def sent(self, memory: Tensor, offset: int) -> None:
        self._flushed += 1
        self.at("first bucket" if self._flushed == 1 else "second bucket")
        if self._place == "damage always" or (self._place == "damage" and not self._damaged):
            self._damaged += 1
            memory[offset] ^= 0x40


class _Window(Window):
    def __init__(self, stopping: Stopping, inner: Window):
        self._stopping, self._inner, self.memory = stopping, inner, inner.memory

    def invite(self, control: Connection) -> None:
        self._stopping.at("invite")
        self._inner.invite(control)

    def take(self, control: Connection, nbytes: int) -> Tensor | None:
        return self._inner.take(control, nbytes)

    def close(self) -> None:
        self._inner.close()


class _Remote(Remote):
    def __init__(self, stopping: Stopping, inner: Remote):
        self._stopping, self._inner, self.memory = stopping, inner, inner.memory

    def put(self, data: Tensor) -> None:
        data = data.clone()
        self._stopping.sent(data, 0)
        self._inner.put(data)

    def flush(self, runs: Runs) -> None:
        self._inner.flush(runs)
        if self.memory is not None:
            self._stopping.sent(self.memory, runs[0][0] if runs else 0)

    def close(self) -> None:
        self._inner.close()
