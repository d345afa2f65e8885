"""What one source rank sends in one attempt: bucket by bucket into the windows of a replica's ranks.

Where the windows can be written in place, a slice is copied once: from the trainer's tensor, converted on the way, to
where the engine reads it. Else the next bucket is gathered and converted while the last one is on its way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import xxhash

from posttrain.etha import formats
from posttrain.etha.channel import Broken, Channel, call
from posttrain.etha.layout import RankLayout
from posttrain.etha.placement import Arena, Places
from posttrain.etha.plan import Bucket
from posttrain.etha.transports.base import Remote, Transport
from posttrain.etha.transports.digests import host_digest
from posttrain.etha.wire import Address, Again, Done, Filled, Hello, Send, SourcePart, Welcome

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 3  # in which a damaged bucket is sent again
_DEPTH = 2  # buckets between gathering and sending


class Failed(Exception):
    """Why an attempt cannot go on, in one line."""


@dataclass
class Link:
    """A destination: its channel, and its window as it was opened last. `places` are known by plan and bucket."""

    channel: Channel
    window: str = ""
    remote: Remote | None = None
    places: dict[tuple[str, int], Places] = field(default_factory=dict)


class Links:
    """The destinations of one source rank, kept open from attempt to attempt. For one thread per replica."""

    def __init__(self, transport: Transport):
        self._transport = transport
        self._links: dict[Address, Link] = {}

    def open(self, address: Address, attempt: int, source: int) -> Link:
        """The link, with the window of the attempt open. Raises one of `Broken`."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(call(address))
        link.channel.send(Hello(attempt, source, link.window))
        welcome = link.channel.receive(Welcome)
        if welcome.invite:
            if link.remote is not None:
                link.remote.close()
            link.places.clear()
            link.remote, link.window = self._transport.open(link.channel.connection), welcome.window
        return link

    def cut(self, addresses: Sequence[Address]) -> None:
        """End the channels to these, from any thread."""
        for address in addresses:
            if link := self._links.pop(address, None):
                link.channel.cut()

    def close(self) -> None:
        for address in list(self._links):
            self.cut([address])


class Gathering:
    """The slices of a rank's tensors by bucket, found once for tensors that stay where they are."""

    def __init__(self, layout: RankLayout):
        self._layout = layout
        self._at: list[int] = []
        self._slices: dict[tuple[str, int], list[Tensor] | None] = {}

    def tensors_are(self, tensors: Mapping[str, Tensor]) -> None:
        at = [tensor.data_ptr() for tensor in tensors.values()]
        if at != self._at:
            self._at = at
            self._slices.clear()
        self._tensors = tensors

    def slices(self, plan: str, bucket: Bucket, part: SourcePart) -> list[Tensor] | None:
        """Of the bucket's transfers in order; None where one has to be encoded with scales."""
        key = (plan, bucket.number)
        if key not in self._slices:
            scaled = any(formats.parse(part.wants[t.want].format).block is not None for t in bucket.transfers)
            self._slices[key] = None if scaled else [
                self._tensors[t.name][self._layout.tensors[t.name][t.piece].local(t.box)] for t in bucket.transfers
            ]  # fmt: skip
        return self._slices[key]

    def pack(self, bucket: Bucket, part: SourcePart, out: Tensor) -> None:
        """The bucket's bytes, encoded, one after the other."""
        for t in bucket.transfers:
            piece = self._layout.tensors[t.name][t.piece]
            formats.take(
                self._tensors[t.name], piece, t.box, part.wants[t.want].format, out[t.offset : t.offset + t.nbytes]
            )


class Sending:
    """One attempt. `run` may be ended from another thread by `cancel`."""

    def __init__(
        self, order: Send, part: SourcePart, rank: int, tensors: Mapping[str, Tensor], gathering: Gathering,
        links: Links, transport: Transport,
    ):  # fmt: skip
        self.order, self._part, self._rank, self._tensors = order, part, rank, tensors
        self._gathering, self._links, self._transport = gathering, links, transport
        self._cancelled, self._lock, self._over = threading.Event(), threading.Lock(), False
        self._scratch: list[Tensor] = []

    def cancel(self) -> None:
        """Have `run` end soon; nothing, where it has."""
        with self._lock:
            self._cancelled.set()
            if not self._over:
                self._links.cut(list(self.order.ranks.values()))

    def run(self) -> dict[int, str]:
        """Digests of what went to each rank. Raises Failed."""
        try:
            return self._run()
        finally:
            with self._lock:
                self._over = True

    @torch.no_grad()
    def _run(self) -> dict[int, str]:
        buckets, ranks = self._part.buckets, sorted({d for b in self._part.buckets for d in b.destinations})
        addresses = [self.order.ranks[rank] for rank in ranks]
        try:
            self._gathering.tensors_are(self._tensors)
            links = {
                rank: self._links.open(address, self.order.attempt, self._rank)
                for rank, address in zip(ranks, addresses, strict=True)
            }
            arenas = {rank: Arena.of(self._part.lists[rank]) for rank in ranks}
            digests: dict[int, int] = {}
            todo = {(bucket.number, rank) for bucket in buckets for rank in bucket.destinations}
            for _ in range(_ROUNDS):
                numbers = {number for number, _ in todo}
                self._send([b for b in buckets if b.number in numbers], todo, links, arenas, digests)
                for link in links.values():
                    link.channel.send(Done())
                todo = {(number, rank) for rank in ranks for number in links[rank].channel.receive(Again).buckets}
                if not todo:
                    return {
                        rank: digest_of({b.number: digests[b.number] for b in buckets if rank in b.destinations})
                        for rank in ranks
                    }
            raise Failed(f"{len(todo)} buckets came damaged {_ROUNDS} times, the first with number {min(todo)[0]}")
        except Failed:
            self._links.cut(addresses)
            raise
        except Broken as problem:
            self._links.cut(addresses)
            raise Failed(f"a rank of {self.order.replica} is gone: {problem or type(problem).__name__}") from None
        except Exception as problem:  # whatever a tensor or a transport breaks on: the version before goes on
            self._links.cut(addresses)
            raise Failed(f"cannot send: {type(problem).__name__}: {problem}") from problem

    def _send(
        self, buckets: Sequence[Bucket], todo: set[tuple[int, int]], links: Mapping[int, Link],
        arenas: Mapping[int, Arena], digests: dict[int, int],
    ) -> None:  # fmt: skip
        under_way: list[Future[None]] = []
        with ThreadPoolExecutor(1, thread_name_prefix="etha-send") as pool:
            for count, bucket in enumerate(buckets):
                if self._cancelled.is_set():
                    raise Failed("cancelled")
                to = [rank for rank in bucket.destinations if (bucket.number, rank) in todo]
                in_place = [rank for rank in to if links[rank].remote.memory is not None]  # type: ignore[union-attr]
                if in_place:
                    digests[bucket.number] = self._write(bucket, in_place, links, arenas)
                if rest := [rank for rank in to if rank not in in_place]:
                    data = self._gather(bucket, count)
                    digests[bucket.number] = self._transport.digest(data, [(0, bucket.nbytes)])
                    under_way.append(pool.submit(self._put, bucket, digests[bucket.number], data, rest, links))
                    if len(under_way) >= _DEPTH:
                        under_way.pop(0).result()
            for future in under_way:
                future.result()

    def _write(
        self, bucket: Bucket, ranks: Sequence[int], links: Mapping[int, Link], arenas: Mapping[int, Arena]
    ) -> int:
        """Into the windows of `ranks`, converted once; the digest of the bucket."""
        slices, first, digest = self._gathering.slices(self.order.plan, bucket, self._part), None, 0
        for rank in ranks:
            link, key = links[rank], (self.order.plan, bucket.number)
            assert link.remote is not None and link.remote.memory is not None
            if key not in link.places:
                link.places[key] = Places.of(link.remote.memory, arenas[rank], bucket, self._part.wants)
            places = link.places[key]
            if first is not None:
                copy_all(places.views, first.views)
            elif slices is not None:
                copy_all(places.views, slices)
            else:
                scratch = self._room(bucket.nbytes, 0)
                self._gathering.pack(bucket, self._part, scratch)
                places.unpack(scratch)
            if first is None:
                first, digest = places, digest_places(self._transport, link.remote.memory, places)
            link.remote.flush(places.runs or ())
            link.channel.send(Filled(bucket.number, digest))
        return digest

    def _gather(self, bucket: Bucket, count: int) -> Tensor:
        data = self._room(bucket.nbytes, count % (_DEPTH + 1))
        self._gathering.pack(bucket, self._part, data)
        return data

    def _put(self, bucket: Bucket, digest: int, data: Tensor, ranks: Sequence[int], links: Mapping[int, Link]) -> None:
        for rank in ranks:
            link = links[rank]
            assert link.remote is not None
            link.channel.send(Filled(bucket.number, digest))
            link.remote.put(data)

    def _room(self, nbytes: int, which: int) -> Tensor:
        while len(self._scratch) <= which:
            largest = max(bucket.nbytes for bucket in self._part.buckets)
            self._scratch.append(torch.empty(largest, dtype=torch.uint8, device=self._transport.device))
        return self._scratch[which][:nbytes]


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy and convert each: one call for all, which counts where tensors are small and many."""
    torch._foreach_copy_(list(targets), list(sources))


def digest_places(transport: Transport, memory: Tensor, places: Places) -> int:
    """The digest of a bucket's bytes in their places."""
    if places.runs is not None:
        return transport.digest(memory, places.runs)
    return transport.digest(places.packed(), [(0, places.nbytes)])


def digest_of_wants(buffers: Iterable[Tensor]) -> str:
    """One digest for the encoded bytes of all wants of a rank, however they came."""
    return digest_of({number: host_digest(b.cpu(), [(0, len(b))]) for number, b in enumerate(buffers)})


def digest_of(buckets: Mapping[int, int]) -> str:
    """One digest for all buckets that a source sent to a rank."""
    total = xxhash.xxh3_128()
    for number, digest in sorted(buckets.items()):
        total.update(number.to_bytes(8, "little") + digest.to_bytes(8, "little"))
    return total.hexdigest()
