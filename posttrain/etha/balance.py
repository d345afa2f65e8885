"""Which of several holders sends what to whom, so that no source and no host sends more than it must.

Holders on a destination's own host come first. Among the rest the one that would be done soonest is given the next
part (greedy by bytes). Destinations that want one box are dealt out to its holders, and equal tensors of a model are
dealt in one go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from posttrain.etha.geometry import Holder
from posttrain.etha.topology import Topology


class Balance:
    """Bytes that each source and host have been given to send so far."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.source_host = np.array(topology.sources, dtype=np.int64)
        self.hosts: dict[tuple[int, ...], set[int]] = {}
        self.ports = np.zeros(len(topology.sources))
        self.uplinks = np.zeros(len(topology.hosts))
        self.uplink_rate = np.array([host.uplink for host in topology.hosts])

    def deal(
        self, holders: Sequence[Holder], destinations: tuple[int, ...], nbytes: int, tensors: int
    ) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Parts of the destinations, and for each part which holder serves it for each of so many equal tensors."""
        for candidates, near, local in self._by_host(holders, destinations):
            ranks = np.array([holders[candidate].rank for candidate in candidates])
            count = min(len(candidates), len(near))
            shares = np.array([tensors])
            if len(candidates) > 1:
                each = nbytes * len(near) / count
                shares = self._shares(ranks, each, tensors * count, local)
            # All turns of one holder lie evenly among those of the others, so that parts of one tensor differ in it;
            # and as some parts may have a destination more, each holder has each part in turn.
            turns = np.concatenate([(np.arange(share) + 0.5) / share for share in shares.tolist() if share])
            order = np.repeat(np.arange(len(ranks)), shares)[np.argsort(turns, kind="stable")].reshape(tensors, count)
            size, larger = divmod(len(near), count)
            for number in range(count):
                low = number * size + min(number, larger)
                part = near[low : low + size + (number < larger)]
                chosen = order[np.arange(tensors), (np.arange(tensors) + number) % count]
                self._give(ranks[chosen], nbytes * len(part), local)
                yield part, np.array(candidates)[chosen]

    def _by_host(
        self, holders: Sequence[Holder], destinations: tuple[int, ...]
    ) -> Iterator[tuple[list[int], tuple[int, ...], bool]]:
        """(indices of holders, destinations that they serve, whether these are on the holders' host)."""
        on_host: dict[int, list[int]] = {}
        for number, holder in enumerate(holders):
            on_host.setdefault(self.topology.sources[holder.rank], []).append(number)
        hosts = self._hosts_of(destinations)
        if not hosts & on_host.keys() or (len(holders) == 1 and len(hosts) > 1):  # one bucket for all
            yield list(range(len(holders))), destinations, False
            return
        near: dict[int, list[int]] = {}
        for rank in destinations:
            host = self.topology.destinations[rank]
            near.setdefault(host if host in on_host else -1, []).append(rank)
        for host, ranks in near.items():
            yield on_host.get(host, list(range(len(holders)))), tuple(ranks), host >= 0

    def _hosts_of(self, destinations: tuple[int, ...]) -> set[int]:
        if destinations not in self.hosts:
            self.hosts[destinations] = {self.topology.destinations[rank] for rank in destinations}
        return self.hosts[destinations]

    def _shares(self, ranks: np.ndarray, each: float, count: int, local: bool) -> np.ndarray:
        """How many of `count` units of `each` bytes these sources get, so that what is done last is done soonest."""
        loads = self.ports[ranks]
        shares = _level(loads, each, count)
        if local:
            return shares
        hosts, inverse = np.unique(self.source_host[ranks], return_inverse=True)
        rates, crossed = self.uplink_rate[hosts], self.uplinks[hosts]
        last = (loads + shares * each)[shares > 0].max() / self.topology.port
        if ((crossed + np.bincount(inverse, shares * each)) / rates).max() <= last + each / self.topology.port:
            return shares

        def room(seconds: float) -> np.ndarray:
            """Bytes that each host can still send until then."""
            of_ports = np.bincount(inverse, np.maximum(self.topology.port * seconds - loads, 0))
            return np.minimum(of_ports, np.maximum(rates * seconds - crossed, 0))

        low, high = 0.0, ((crossed.max() + loads.max() + count * each) / min(rates.min(), self.topology.port))
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if room(middle).sum() >= count * each else (middle, high)
        of_hosts = (room(low) // each).astype(np.int64)  # which is a little less than all
        for _ in range(count - int(of_hosts.sum())):
            of_hosts[np.argmin((crossed + (of_hosts + 1) * each) / rates)] += 1
        for host, units in enumerate(of_hosts.tolist()):
            shares[inverse == host] = _level(loads[inverse == host], each, units)
        return shares

    def _give(self, ranks: np.ndarray, nbytes: int, local: bool) -> None:
        np.add.at(self.ports, ranks, nbytes)
        if not local:
            np.add.at(self.uplinks, self.source_host[ranks], nbytes)


def _level(loads: np.ndarray, each: float, count: int) -> np.ndarray:
    """How many of `count` units of `each` bytes the bearers of these loads get, so that the highest is lowest."""
    order = np.argsort(loads, kind="stable")
    sorted_loads = loads[order]
    filled = np.arange(1, len(loads) + 1)
    levels = (np.cumsum(sorted_loads) + count * each) / filled  # of the water, were it in the lowest so many only
    level = levels[np.flatnonzero(levels >= sorted_loads)[-1]]
    shares = np.maximum((level * (1 - 1e-12) - loads) // each, 0).astype(np.int64)  # never more than there are
    for _ in range(count - int(shares.sum())):
        shares[np.argmin(loads + shares * each)] += 1
    return shares
