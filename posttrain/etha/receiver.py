"""The inference side of one rank: takes the bytes of new versions in the background, and has them ready for the engine.

    specs = source_specs(coordinator)                       # waits for a publisher; names, shapes, dtypes, aliases
    receiver = Receiver(coordinator, replica="a", rank=0, ranks=2, wants=learn(model, specs.specs), url="http://…")
    receiver.start()                                        # registers, then heartbeats and receives in threads
    …
    with receiver.applying(7) as tensors:                   # when the coordinator has the engine update to version 7
        load(model, specs, tensors)                         # Mapping[Want, Tensor], views of the staging memory

Invariants: `applying` gives a version only after this rank holds all of it, byte by byte as its sources sent it, and is
asked for only after every rank of the replica does; what it gives stays as it is until it is left; a rank whose
`applying` did not end well says that its engine holds no version, so that its replica takes no traffic until a push
went through.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from posttrain.errors import UserError
from posttrain.etha.channel import Broken, Door
from posttrain.etha.coordinator.client import EthaClient
from posttrain.etha.layout import SourceLayout
from posttrain.etha.membership import Membership
from posttrain.etha.placement import Arena
from posttrain.etha.receiving import Receiving, Staging
from posttrain.etha.slices import Want
from posttrain.etha.transports import named
from posttrain.etha.transports.base import Transport
from posttrain.etha.wire import (
    Apply,
    Checked,
    Hello,
    Joined,
    JoinRank,
    RankBeat,
    RankOrders,
    RankPart,
    RankReport,
    RankTold,
    Receive,
)

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
_HELLO_SECONDS = 30.0  # for which a source may be ahead of the orders that announce it
_PROGRESS_SECONDS = 0.5  # between two words on how much has come
_PATIENCE = 5.0  # with a coordinator that is away, before the next try


def source_specs(coordinator: str, *, wait: float = 600.0) -> SourceLayout:
    """What the publishers hold (`specs` and `aliases`; no ranks), once all of their ranks have said so.

    Raises UserError where nobody has within `wait` seconds.
    """
    with EthaClient(coordinator, field="coordinator", patience=wait) as client:
        return client.specs(wait)


class Receiver:
    """One rank of a replica. `version` is what the engine holds at the start; 0 stands for "as it was started",
    None for no version for sure.

    `url` is the engine's HTTP address (vLLM's with VLLM_SERVER_DEV_MODE=1), which the coordinator drives: pause,
    start_weight_update, update_weights({"version": v}), finish_weight_update(str(v)), reset of caches, resume. Without
    `url` there is no engine to drive, and `apply(version, tensors)` is called in a thread of the receiver instead.
    `host` is where other hosts reach this one.
    """

    def __init__(
        self, coordinator: str, *, replica: str, rank: int, ranks: int, wants: Sequence[Want], url: str = "",
        apply: Callable[[int, Mapping[Want, Tensor]], None] | None = None, version: int | None = 0,
        transport: str | Transport = "shm", host: str = "127.0.0.1",
    ):  # fmt: skip
        self._client = EthaClient(coordinator, field="coordinator", patience=_PATIENCE)
        self._replica, self._rank, self._ranks, self._url = replica, rank, ranks, url
        self._wants, self._apply = tuple(dict.fromkeys(wants)), apply
        self._transport = named(transport)
        self._staging = Staging(self._transport, Arena.of(self._wants))
        self._door = Door(self._transport, host)
        self._lock = threading.Condition()
        self._receiving: Receiving | None = None
        self._report = RankReport(1, applied=version)
        self._applied_commit = self._checked = 0
        self._told = 0.0
        self._parts: dict[str, RankPart] = {}
        name = f"{replica}/{rank}"
        self._membership = Membership(
            name, join=self._join, beat=self._beat, obey=self._obey, drop=lambda: self._receive(None),
            leave=lambda epoch: self._client.leave("replicas", name, epoch),
        )  # fmt: skip
        self._key = name
        self._closed = False

    def start(self) -> None:
        """Register. Raises UserError where the coordinator refuses, as for a rank of another number of ranks."""
        self._membership.start()
        threading.Thread(target=self._accept_for_ever, name=f"{self._key}-door", daemon=True).start()

    def staged(self, version: int) -> Mapping[Want, Tensor]:
        """The whole of `version`, one tensor per want in the shape of its box, as views (float32 values for formats
        with scales). Raises UserError where this rank does not hold it."""
        with self._lock:
            receiving = self._receiving
        if receiving is None or receiving.order.version != version or not receiving.complete:
            raise UserError(f"{self._key} does not hold this version", field="version", value=version)
        return self._staging.tensors()

    @contextmanager
    def applying(self, version: int) -> Iterator[Mapping[Want, Tensor]]:
        """`staged(version)`; the engine holds no version within, and `version` once this is left without an error."""
        with self._staging.in_use():
            tensors = self.staged(version)
            self._say(applied=None)
            yield tensors
            self._say(applied=version)

    def close(self) -> None:
        """Leave: the replica takes no traffic any more. Staged tensors stay valid while they are held."""
        self._closed = True
        self._membership.close()
        self._receive(None)
        self._door.close()
        self._staging.close()
        self._client.close()

    def _join(self) -> Joined:
        asked = JoinRank(self._ranks, self._wants, self._door.address, self._url, self._report.applied)
        return self._client.join_rank(self._replica, self._rank, asked)

    def _beat(self, epoch: int, seen: str, wait: float) -> RankTold:
        with self._lock:
            report = self._report
        return self._client.rank_beats(self._key, RankBeat(epoch, report, seen, wait))

    def _say(self, **changes: object) -> None:
        with self._lock:
            self._report = replace(self._report, sequence=self._report.sequence + 1, **changes)
        self._membership.report()

    def _obey(self, orders: RankOrders) -> None:
        self._receive(orders.receive)
        if orders.check != self._checked:
            self._checked = orders.check
            self._check(orders.check)
        if orders.apply is not None and orders.apply.commit != self._applied_commit:
            self._applied_commit = orders.apply.commit
            threading.Thread(target=self._carry_out, args=(orders.apply,), name=f"{self._key}-apply").start()

    def _check(self, number: int) -> None:
        """Say what the staging has in it, by reading all of it."""
        with self._lock:
            receiving = self._receiving
        if receiving is None or not receiving.complete:
            self._say(checked=Checked(number, None))
            return
        self._say(checked=Checked(number, receiving.order.version, self._staging.digest()))

    def _receive(self, order: Receive | None) -> None:
        """Take part in this attempt, and in no other any more."""
        with self._lock:
            current = self._receiving
            if (current.order if current else None) == order or (order is None and current and current.complete):
                return  # what is whole stays until something else is to come
            self._receiving = None
        if current is not None:
            current.end()
        if order is None or self._closed:
            return
        try:
            if order.plan not in self._parts:
                self._parts = {order.plan: self._client.rank_part(order.plan, self._rank)}
            part = self._parts[order.plan]
            window = self._staging.window()
        except UserError as problem:
            self._broken(order.attempt, str(problem))
            return
        receiving = Receiving(order, part, self._staging, window, self._transport, self._progress, self._broken)
        with self._lock:
            self._receiving = receiving
            self._lock.notify_all()
        receiving.begin()

    def _progress(self, receiving: Receiving) -> None:
        """Called after each bucket, and when nothing is lacking any more."""
        with self._lock:
            if self._receiving is not receiving:
                return
        now = time.monotonic()
        if receiving.complete:
            done = {"held": receiving.order.attempt, "digests": receiving.digests()}
            self._say(moved=self._staging.moved, resent=self._staging.resent, **done)
        elif now - self._told > _PROGRESS_SECONDS:
            self._told = now
            self._say(moved=self._staging.moved, resent=self._staging.resent)

    def _broken(self, attempt: int, reason: str) -> None:
        log.warning("%s: attempt %d ended: %s", self._key, attempt, reason)
        self._say(broken={attempt: reason})

    def _carry_out(self, order: Apply) -> None:
        try:
            with self.applying(order.version) as tensors:
                if self._apply is not None:
                    self._apply(order.version, tensors)
        except Exception as problem:  # whatever an engine breaks on: the coordinator must hear that it did
            log.exception("%s could not change to version %d", self._key, order.version)
            self._say(failed=(order.commit, f"{type(problem).__name__}: {problem}"))

    def _accept_for_ever(self) -> None:
        while not self._closed:
            try:
                connection = self._door.accept()
            except OSError:
                return
            name = f"{self._key}-source"
            threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """One source's channel, from attempt to attempt, until either side ends it."""
        try:
            channel = self._door.admit(connection)
            while True:
                hello = channel.from_source()
                if not isinstance(hello, Hello) or (receiving := self._expected(hello)) is None:
                    return
                receiving.take(channel, hello)
        except (AuthenticationError, *Broken) as problem:
            log.debug("%s: a channel ended: %r", self._key, problem)
        finally:
            connection.close()

    def _expected(self, hello: Hello) -> Receiving | None:
        """The attempt that a source speaks of, which this rank may hear of a moment later than the source."""
        with self._lock:
            self._lock.wait_for(
                lambda: self._closed or (self._receiving and self._receiving.order.attempt >= hello.attempt),
                _HELLO_SECONDS,
            )
            found = self._receiving
        return found if found is not None and found.order.attempt == hello.attempt else None
