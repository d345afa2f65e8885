"""One member's place at the coordinator: joins, is heard of before its lease ends, says what has changed, obeys.

Invariants: orders are obeyed one after the other, in the order in which they were given; a member that was believed
lost joins anew under another epoch, and whatever belonged to the old one is dropped first; one whose place another
process has taken ends; a coordinator that is away is waited for, since nothing that is served depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from posttrain.errors import UserError
from posttrain.etha.wire import Joined, RankOrders, RankTold, SourceOrders, SourceTold
from posttrain.service_client import ServiceAway, ServiceError

log = logging.getLogger(__name__)
Told = SourceTold | RankTold
_GONE, _REPLACED = 410, 409


class Membership:
    """`join()`, `beat(epoch, seen, wait)` and `leave(epoch)` call the coordinator; `obey` takes orders, `drop` ends
    what belonged to an epoch that is over, and both are called in one thread."""

    def __init__(
        self, name: str, *, join: Callable[[], Joined], beat: Callable[[int, str, float], Told],
        leave: Callable[[int], None], obey: Callable[[Any], None], drop: Callable[[], None],
    ):  # fmt: skip
        self._name, self._join, self._beat, self._leave = name, join, beat, leave
        self._obey, self._drop = obey, drop
        self.replaced = False
        self._stopping, self._changed = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"{name}-{what}", daemon=True)
            for what, target in (("orders", self._listen_for_ever), ("reports", self._report_for_ever))
        ]

    def start(self) -> None:
        """Join, and go on in threads. Raises UserError where the coordinator refuses or is not there."""
        self._joined = self._join()
        for thread in self._threads:
            thread.start()

    def report(self) -> None:
        """What the next beat says has changed: let there be one now."""
        self._changed.set()

    def close(self) -> None:
        """Leave; returns once nothing is said or obeyed any more. For any thread but those of this."""
        self._stopping.set()
        self._changed.set()
        try:
            self._leave(self._joined.epoch)
        except UserError as problem:
            log.warning("%s could not say that it leaves: %s", self._name, problem)
        for thread in self._threads:
            thread.join()

    def _listen_for_ever(self) -> None:
        seen = ""
        while not self._stopping.is_set():
            joined = self._joined
            try:
                told = self._beat(joined.epoch, seen, joined.lease_seconds / 3)
            except ServiceError as refused:
                if self._stopping.is_set():
                    return
                if refused.status == _REPLACED:
                    log.error("%s: %s", self._name, refused)
                    self.replaced = True
                    self._drop()
                    return
                if refused.status == _GONE:
                    seen = ""
                    self._rejoin()
                else:
                    log.error("%s: %s", self._name, refused)
                    self._stopping.wait(joined.lease_seconds / 3)
                continue
            except ServiceAway as problem:
                log.warning("%s: %s", self._name, problem)
                continue
            if told.tag != seen and not self._stopping.is_set():
                seen = told.tag
                orders: SourceOrders | RankOrders = told.orders
                self._obey(orders)

    def _rejoin(self) -> None:
        log.warning("%s was believed lost and joins again", self._name)
        self._drop()
        try:
            self._joined = self._join()
        except UserError as problem:
            log.warning("%s: %s", self._name, problem)
            self._stopping.wait(self._joined.lease_seconds / 3)

    def _report_for_ever(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._stopping.is_set():
                return
            try:
                self._beat(self._joined.epoch, "", 0.0)  # its orders come to the other thread
            except UserError as problem:  # the other thread says the same again with its next beat
                log.debug("%s: %s", self._name, problem)
