"""The publishing side of one rank: offers versions of its tensors, and sends what each destination wants of them.

    held = layout_of(model)                                  # live.py; or a checkpoint, checkpoint.py
    publisher = Publisher(coordinator, held.layout, held.tensors, rank=0, ranks=4, keep=2)
    publisher.start()
    …
    outcome = publisher.push(7)                              # on every rank, after the optimizer's step

Invariants: what is sent as version v are the tensors as they were at `push(v)`: without `keep` it returns only once
nothing of them is sent any more, with it the tensors are copied first; a version that did not get through is withdrawn.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from posttrain.errors import UserError
from posttrain.etha.coordinator.client import EthaClient
from posttrain.etha.layout import SourceLayout
from posttrain.etha.membership import Membership
from posttrain.etha.sending import Failed, Gathering, Links, Sending
from posttrain.etha.transports import named
from posttrain.etha.transports.base import Transport
from posttrain.etha.wire import (
    Joined,
    JoinSource,
    Outcome,
    Send,
    SourceBeat,
    SourceOrders,
    SourcePart,
    SourceReport,
    SourceTold,
)

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
_PATIENCE = 5.0  # with a coordinator that is away, before the next try
_PARTS = 8  # of plans, kept
_ATTEMPTS = 64  # whose ends are told


class PushFailed(UserError):
    """A version that was not decided: the one before goes on."""

    exit_code = 1


class Publisher:
    """One rank of `ranks` that publish together as `group`. `layout` is of this rank alone, `tensors` its local tensors
    by the layout's names. `keep` is how many versions are copied to this rank's memory, so that replicas that come late
    get them and a roll back is possible; 0 copies none."""

    def __init__(
        self, coordinator: str, layout: SourceLayout, tensors: Mapping[str, Tensor], *, group: str = "trainer",
        rank: int = 0, ranks: int = 1, transport: str | Transport = "shm", keep: int = 0,
    ):  # fmt: skip
        self._client = EthaClient(coordinator, field="coordinator", patience=_PATIENCE)
        self._layout, self._tensors, self._rank, self._ranks = layout, tensors, rank, ranks
        self._transport, self._keep, self._group = named(transport), keep, group
        self._key = f"{group}/{rank}"
        self._lock = threading.Condition()
        self._report = SourceReport(1)
        self._versions: dict[int, Mapping[str, Tensor]] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._sendings: dict[int, tuple[Sending, threading.Thread]] = {}
        self._last: dict[str, threading.Thread] = {}
        self._links: dict[str, Links] = {}
        self._gatherings: dict[str, Gathering] = {}
        self._parts: dict[str, SourcePart] = {}
        self._membership = Membership(
            self._key, join=self._join, beat=self._beat, obey=self._obey, drop=lambda: self._obey(SourceOrders()),
            leave=lambda epoch: self._client.leave("sources", self._key, epoch),
        )  # fmt: skip

    def start(self) -> None:
        """Join. Raises UserError where the coordinator refuses or is not there."""
        self._membership.start()

    def push(self, version: int, *, timeout: float = 3600.0, until: str = "committed") -> Outcome:
        """Publish the tensors as they are now. Called on every rank, each of which has the same outcome.

        Returns once the version is decided, or with `until="serving"` once every replica that holds it serves it.
        Raises PushFailed where it is not decided, and UserError for a version that is not above every one before.
        """
        if until not in ("committed", "serving"):
            raise UserError("is nothing to wait for", field="until", value=until, remedy="committed or serving")
        highest = self._client.versions().highest
        if version <= highest:
            remedy = f"push {highest + 1} or more; to serve an earlier one again, roll back"
            raise UserError(f"is not above version {highest}", field="version", value=version, remedy=remedy)
        self.offer(version)
        decided = False
        try:
            outcome = self._wait(version, timeout, until)
            decided = outcome.state == "committed"
        finally:
            if self._keep == 0 or not decided:
                self.withdraw(version)
        if self._membership.replaced:
            raise PushFailed("another process publishes in the place of this one", field="rank", value=self._key)
        if not decided:
            why = outcome.reason or f"was not decided within {timeout:g} s"
            raise PushFailed(f"did not get through: {why}", field="version", value=version)
        return outcome

    def offer(self, version: int) -> None:
        """Have the tensors as they are now sent to whoever wants this version, and wait for nothing."""
        room: Mapping[str, Tensor] = {}
        while self._keep and len(self._versions) >= self._keep:
            oldest = min(self._versions)
            room = self._versions[oldest]
            self.withdraw(oldest)
        kept = self._copied(room) if self._keep else self._tensors
        with self._lock:
            self._versions[version] = kept
            self._outcomes.pop(version, None)
        self._offers({version: secrets.randbits(52)})

    def withdraw(self, version: int) -> None:
        """Send nothing of the version any more; returns once nothing is."""
        with self._lock:
            self._versions.pop(version, None)
            under_way = [(s, thread) for s, thread in self._sendings.values() if s.order.version == version]
        self._offers({})
        for sending, thread in under_way:
            sending.cancel()
            thread.join()

    @property
    def replaced(self) -> bool:
        """Whether another process has joined in the place of this one, which is told nothing any more."""
        return self._membership.replaced

    def close(self) -> None:
        """Leave. What is under way is ended."""
        self._membership.close()
        self._obey(SourceOrders())
        for links in self._links.values():
            links.close()
        self._client.close()

    def _copied(self, room: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """A copy of the tensors, in the memory of a version that had to go."""
        if not room:
            return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._tensors.items()}
        for name, tensor in self._tensors.items():
            room[name].copy_(tensor.detach())
        return room

    def _wait(self, version: int, timeout: float, until: str) -> Outcome:
        def settled() -> bool:
            outcome = self._outcomes.get(version)
            if outcome is None or outcome.state not in ("committed", "aborted"):
                return False
            return until == "committed" or outcome.state == "aborted" or not outcome.ready

        deadline = time.monotonic() + timeout
        with self._lock:
            while not settled() and not self._membership.replaced and (left := deadline - time.monotonic()) > 0:
                self._lock.wait(left)
            return self._outcomes.get(version, Outcome("waiting"))

    def _join(self) -> Joined:
        return self._client.join_source(self._group, self._rank, JoinSource(self._ranks, self._layout))

    def _beat(self, epoch: int, seen: str, wait: float) -> SourceTold:
        with self._lock:
            report = self._report
        return self._client.source_beats(self._key, SourceBeat(epoch, report, seen, wait))

    def _offers(self, new: Mapping[int, int]) -> None:
        with self._lock:
            offers = {v: push for v, push in self._report.offers.items() if v in self._versions} | dict(new)
            self._report = replace(self._report, sequence=self._report.sequence + 1, offers=offers)
        self._membership.report()

    def _obey(self, orders: SourceOrders) -> None:
        wanted = {order.attempt: order for order in orders.sends}
        with self._lock:
            self._outcomes.update(orders.outcomes)
            self._lock.notify_all()
            over = [self._sendings.pop(attempt) for attempt in list(self._sendings) if attempt not in wanted]
        for sending, _ in over:
            sending.cancel()
        for order in wanted.values():
            if order.attempt not in self._sendings:
                self._begin(order)

    def _begin(self, order: Send) -> None:
        try:
            part = self._part(order.plan)
        except UserError as problem:
            self._end(order, broken=str(problem))
            return
        gathering = self._gatherings.setdefault(order.replica, Gathering(self._layout.ranks[0]))
        links = self._links.setdefault(order.replica, Links(self._transport))
        with self._lock:
            tensors = self._versions.get(order.version)
            if tensors is None:
                return
            sending = Sending(order, part, self._rank, tensors, gathering, links, self._transport)
            name, last = f"{self._key}-{order.replica}", self._last.get(order.replica)
            thread = threading.Thread(target=self._send, args=(sending, last), name=name, daemon=True)
            self._sendings[order.attempt] = (sending, thread)
            self._last[order.replica] = thread
            thread.start()

    def _send(self, sending: Sending, last: threading.Thread | None) -> None:
        if last is not None:
            last.join()  # it was cancelled, and the two share the links
        try:
            digests = sending.run()
        except Failed as problem:
            log.warning("%s: attempt %d ended: %s", self._key, sending.order.attempt, problem)
            self._end(sending.order, broken=str(problem))
        else:
            self._end(sending.order, sent=digests)

    def _end(self, order: Send, *, sent: dict[int, str] | None = None, broken: str = "") -> None:
        with self._lock:
            report = self._report
            if sent is None:
                changes = {"broken": _last(report.broken | {order.attempt: broken})}
            else:
                changes = {"sent": _last(report.sent | {order.attempt: sent})}
            self._report = replace(report, sequence=report.sequence + 1, **changes)
        self._membership.report()

    def _part(self, plan: str) -> SourcePart:
        if plan not in self._parts:
            for old in list(self._parts)[: 1 - _PARTS]:
                del self._parts[old]
            self._parts[plan] = self._client.source_part(plan, self._rank)
        return self._parts[plan]


def _last(attempts: dict) -> dict:
    """Of the attempts that may still be asked about."""
    return dict(sorted(attempts.items())[-_ATTEMPTS:])
