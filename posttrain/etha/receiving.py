"""What one rank receives in one attempt, and the memory that it arrives in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from posttrain.etha.channel import Channel
from posttrain.etha.placement import Arena, Places
from posttrain.etha.plan import Bucket
from posttrain.etha.sending import digest_of, digest_of_wants, digest_places
from posttrain.etha.transports.base import Transport, Window
from posttrain.etha.wire import Again, Done, Filled, Hello, RankPart, Receive, Welcome

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.etha.slices import Want


class Staging:
    """The memory of one version of a rank's wants.

    One window is used again and again, as its pages are there and the sources have it open; a new one is made where
    the last attempt left a source that may still write, or where the engine still reads.
    """

    def __init__(self, transport: Transport, arena: Arena):
        self._transport, self.arena = transport, arena
        self._lock = threading.Lock()
        self._window: Window | None = None
        self._readers = 0
        self._number = 0
        self.name = ""  # of the window, for its sources
        self.places: dict[tuple[str, int], Places] = {}
        self.moved = self.resent = 0

    def window(self) -> Window:
        """The window for a new attempt. Raises UserError where there is no memory."""
        with self._lock:
            if self._window is not None and self._readers:
                self._forget()
            if self._window is None:
                self._window = self._transport.window(self.arena.nbytes)
                self._number += 1
                self.name = f"{id(self):x}.{self._number}"
            return self._window

    def abandon(self, window: Window) -> None:
        """Never use the window again: a source that is not known to have ended may write to it."""
        with self._lock:
            if self._window is window:
                self._forget()

    def tensors(self) -> dict[Want, Tensor]:
        with self._lock:
            assert self._window is not None
            return self.arena.tensors(self._window.memory)

    def digest(self) -> str:
        """Of all wants in their order, read now."""
        with self._lock:
            assert self._window is not None
            memory = self._window.memory
        return digest_of_wants(self.arena.buffer(memory, want) for want in self.arena.offsets)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While the engine reads."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def close(self) -> None:
        with self._lock:
            if self._window is not None:
                self._forget()

    def _forget(self) -> None:
        assert self._window is not None
        self._window.close()
        self._window = None
        self.places.clear()


class Receiving:
    """One attempt. `progress` hears of every bucket and of the end, `broken` why the attempt cannot go on."""

    def __init__(
        self, order: Receive, part: RankPart, staging: Staging, window: Window, transport: Transport,
        progress: Callable[[Receiving], None], broken: Callable[[int, str], None],
    ):  # fmt: skip
        self.order = order
        self._part, self._staging, self._window, self._transport = part, staging, window, transport
        self._progress, self._broken = progress, broken
        self._lock = threading.Lock()
        self._buckets: dict[int, dict[int, Bucket]] = {}
        for bucket in part.buckets:
            self._buckets.setdefault(bucket.source, {})[bucket.number] = bucket
        self._good: dict[int, dict[int, int]] = {source: {} for source in self._buckets}
        self._finished: set[int] = set()
        self._channels: set[Channel] = set()
        self._over = False

    @property
    def complete(self) -> bool:
        return len(self._finished) == len(self._buckets)

    def digests(self) -> Mapping[int, str]:
        return {source: digest_of(good) for source, good in self._good.items()}

    def begin(self) -> None:
        """A rank that wants nothing holds all of it at once."""
        if self.complete:
            self._progress(self)

    def end(self) -> None:
        """Another attempt takes the place of this one."""
        with self._lock:
            self._over = True
            unfinished = not self.complete
            channels = list(self._channels)
        if unfinished:
            self._staging.abandon(self._window)
            for channel in channels:
                channel.cut()

    def take(self, channel: Channel, hello: Hello) -> None:
        """All that a source sends in this attempt. Raises one of `Broken` once the channel has ended."""
        with self._lock:
            if self._over:
                raise EOFError("the attempt is over")
            self._channels.add(channel)
        finished = False
        try:
            name = self._staging.name
            channel.send(Welcome(name, hello.window != name))
            if hello.window != name:
                self._window.invite(channel.connection)
            finished = self._fill(channel, hello.source)
        finally:
            with self._lock:
                self._channels.discard(channel)
                if finished:
                    self._finished.add(hello.source)
                over = self._over
            if not finished and not over:
                self._broken(self.order.attempt, f"source {hello.source} is gone")
        self._progress(self)

    def _fill(self, channel: Channel, source: int) -> bool:
        good = self._good[source]
        while True:
            match channel.from_source():
                case Filled(number, digest):
                    self._check(channel, self._buckets[source][number], digest, good)
                    self._progress(self)
                case Done():
                    lacking = tuple(number for number in self._buckets[source] if number not in good)
                    channel.send(Again(lacking))
                    if not lacking:
                        return True
                    self._staging.resent += len(lacking)
                case Hello():
                    raise EOFError("a source began anew in the middle")

    def _check(self, channel: Channel, bucket: Bucket, digest: int, good: dict[int, int]) -> None:
        memory, key = self._window.memory, (self.order.plan, bucket.number)
        places = self._staging.places.get(key)
        if places is None:
            places = Places.of(memory, self._staging.arena, bucket, self._part.wants)
            self._staging.places[key] = places
        data = self._window.take(channel.connection, bucket.nbytes)
        if data is not None:
            sent = self._transport.digest(data, [(0, bucket.nbytes)])
            if sent == digest:
                places.unpack(data)
        else:
            sent = digest_places(self._transport, memory, places)
        self._staging.moved += bucket.nbytes
        if sent == digest:
            good[bucket.number] = digest
