"""How long a plan takes on a topology: each way and each rank has so much to do, and the busiest decides.

The stages (gather and convert, send, load) overlap from bucket to bucket, so a push lasts as long as its busiest
resource is busy, and besides as long as one bucket needs to pass the other stages. A resource is a rank's work, the
work of all ranks on a host shared by its processors, a port, an uplink or a host's own link. What queues cost beyond
that is not modelled: the order of a plan spreads the work of every source over all of its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.etha import formats, relay
from posttrain.etha.layout import SourceLayout
from posttrain.etha.plan import Plan
from posttrain.etha.slices import Want
from posttrain.etha.topology import Topology


@dataclass(frozen=True, slots=True)
class Simulation:
    """`busy` gives the seconds that each resource has work for; `nbytes` what all destinations get together."""

    seconds: float
    busy: Mapping[str, float]
    nbytes: int

    @property
    def bottleneck(self) -> str:
        return max(self.busy, key=self.busy.__getitem__, default="")

    def utilisation(self, resource: str) -> float:
        return self.busy[resource] / self.seconds if self.seconds else 0.0


class _Load:
    """What every rank, port, uplink and host's own link has to do; ports and uplinks (out, in)."""

    def __init__(self, topology: Topology) -> None:
        sources, destinations, hosts = len(topology.sources), len(topology.destinations), len(topology.hosts)
        self.topology = topology
        self.host_of = np.array([*topology.sources, *topology.destinations], dtype=np.int64)
        self.first_destination = sources
        self.work = np.zeros(sources + destinations)
        self.port_bytes = np.zeros((2, sources + destinations))
        self.uplink_bytes = np.zeros((2, hosts))
        self.local_bytes = np.zeros(hosts)

    def send(self, sender: np.ndarray, receiver: np.ndarray, nbytes: np.ndarray) -> None:
        """Ranks count on from sources to destinations."""
        np.add.at(self.work, sender, nbytes / self.topology.rates.send_bytes)
        out, into = self.host_of[sender], self.host_of[receiver]
        far = out != into
        np.add.at(self.local_bytes, out[~far], nbytes[~far])
        for way, ranks, hosts in ((0, sender, out), (1, receiver, into)):
            np.add.at(self.port_bytes[way], ranks[far], nbytes[far])
            np.add.at(self.uplink_bytes[way], hosts[far], nbytes[far])

    def name(self, rank: int) -> str:
        return f"source {rank}" if rank < self.first_destination else f"destination {rank - self.first_destination}"

    def bytes_by_link(self) -> dict[str, int]:
        found: dict[str, float] = {}
        for way, said in enumerate(("out", "in")):
            found |= {f"{self.name(rank)} {said}": n for rank, n in enumerate(self.port_bytes[way])}
            found |= {f"host {host} {said}": n for host, n in enumerate(self.uplink_bytes[way])}
        found |= {f"host {host} local": n for host, n in enumerate(self.local_bytes)}
        return {name: int(n) for name, n in found.items() if n}

    def busy(self) -> dict[str, float]:
        hosts, port = self.topology.hosts, self.topology.port
        found = {f"{self.name(rank)} work": seconds for rank, seconds in enumerate(self.work)}
        shared = np.bincount(self.host_of, weights=self.work, minlength=len(hosts))
        found |= {f"host {host} work": shared[host] / hosts[host].workers for host in range(len(hosts))}
        for way, said in enumerate(("out", "in")):
            found |= {f"{self.name(rank)} {said}": n / port for rank, n in enumerate(self.port_bytes[way])}
            found |= {f"host {host} {said}": n / hosts[host].uplink for host, n in enumerate(self.uplink_bytes[way])}
        found |= {f"host {host} local": n / hosts[host].local for host, n in enumerate(self.local_bytes)}
        return {name: float(seconds) for name, seconds in found.items() if seconds}


def simulate(plan: Plan, topology: Topology | None = None) -> Simulation:
    """On the topology that the plan was made for, or on another with as many ranks."""
    topology = topology or plan.topology
    rates, table, rows = topology.rates, plan.table, plan.table.rows
    load = _Load(topology)
    if not len(table.source):
        return Simulation(0.0, {}, 0)
    converts = np.array([shape.converts for shape in table.shapes], dtype=bool)[rows.shape]
    rate = np.where(converts, rates.encode_bytes, rates.gather_bytes)
    gather = np.add.reduceat(rows.nbytes / rate + rates.gather_each, table.first[:-1])
    place = np.add.reduceat(rows.nbytes / rates.load_bytes + rates.load_each, table.first[:-1])
    np.add.at(load.work, table.source, gather + rates.bucket_each)
    edges = _edges(plan, topology, place)
    load.send(edges.sender, edges.receiver, edges.nbytes)
    np.add.at(load.work, edges.sender, edges.buckets * rates.bucket_each)
    np.add.at(load.work, edges.receiver, edges.place + edges.buckets * rates.bucket_each)
    busy = load.busy()
    largest = int(np.argmax(table.nbytes))
    far = topology.sources[table.source[largest]] != topology.destinations[table.groups[table.group[largest]][0]]
    wire = float(table.nbytes[largest]) / (topology.port if far else topology.hosts[0].local)
    stages = [float(gather[largest]), wire, float(place[largest])]
    fill = sum(stages) - max(stages) + (edges.depth - 1) * wire + edges.depth * topology.latency
    return Simulation(max(busy.values()) + fill, busy, int(edges.nbytes.sum()))


def traffic(plan: Plan) -> dict[str, int]:
    """Bytes that pass each port, uplink and host's own link; those that nothing passes are left out."""
    load, edges = _Load(plan.topology), _edges(plan, plan.topology, np.zeros(len(plan.table.source)))
    load.send(edges.sender, edges.receiver, edges.nbytes)
    return load.bytes_by_link()


def gather_and_broadcast(source: SourceLayout, wants: Sequence[Sequence[Want]], topology: Topology) -> Simulation:
    """What is done without a plan: every tensor is gathered on all sources, and goes from one of them to everybody.

    Gathering is a ring, the broadcast a chain, both at full speed and one behind the other, tensor by tensor; each
    destination gets whole tensors in the format that it wants, and copies its part.
    """
    rates, ranks = topology.rates, len(topology.sources)
    load = _Load(topology)
    asked = {source.aliases.get(want.name, want.name): want.format for one in {*map(tuple, wants)} for want in one}
    whole = {name: formats.nbytes(format, source.specs[name].shape) for name, format in asked.items()}
    total = sum(whole.values())
    sources = np.arange(ranks)
    if ranks > 1:
        load.send(sources, np.roll(sources, -1), np.full(ranks, total * (ranks - 1) // ranks))
        load.work[sources] += total / rates.gather_bytes + len(whole) * rates.gather_each
    load.work[0] += total / rates.gather_bytes + len(whole) * rates.gather_each
    receivers = np.arange(len(wants)) + ranks
    load.send(np.concatenate([[0], receivers[:-1]]), receivers, np.full(len(wants), total))
    load.work[receivers] += total / rates.load_bytes + len(whole) * rates.load_each
    for rank, listed in enumerate(wants):
        own = sum(formats.nbytes(want.format, want.box.shape) for want in listed)
        load.work[ranks + rank] += own / rates.load_bytes + len(listed) * rates.load_each
    busy = load.busy()
    fill = (ranks + len(wants)) * topology.latency
    return Simulation(max(busy.values(), default=0.0) + fill, busy, total * (len(wants) + ranks - 1))


@dataclass(frozen=True, slots=True)
class _Edges:
    """Messages added up by sender and receiver; ranks count on from sources to destinations.

    `place` is what the receiver has to do with them, in seconds; `depth` the longest way that a bucket is passed on.
    """

    sender: np.ndarray
    receiver: np.ndarray
    nbytes: np.ndarray
    buckets: np.ndarray
    place: np.ndarray
    depth: int


def _edges(plan: Plan, topology: Topology, place: np.ndarray) -> _Edges:
    table, first = plan.table, len(topology.sources)
    pairs, which = np.unique(table.source * len(table.groups) + table.group, return_inverse=True)
    nbytes, seconds = (np.bincount(which, weights=column) for column in (table.nbytes, place))
    buckets = np.bincount(which)
    senders, receivers, depth = [], [], 1
    trees: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for source, group in zip(*(half.tolist() for half in np.divmod(pairs, len(table.groups))), strict=True):
        members, host = table.groups[group], topology.sources[source]
        if (group, host) not in trees:
            above = relay.parents(plan.way, host, members, topology)
            depth = max(depth, 1 if plan.way == "direct" else relay.depth(above, members))
            trees[group, host] = np.array(above), np.array(members) + first
        parents, ranks = trees[group, host]
        senders.append(np.where(parents == relay.DIRECT, source, parents + first))
        receivers.append(ranks)
    each = [len(ranks) for ranks in receivers]
    if not each:
        nothing = np.zeros(0, dtype=np.int64)
        return _Edges(nothing, nothing, nothing, nothing, nothing, depth)
    return _Edges(
        np.concatenate(senders), np.concatenate(receivers), np.repeat(nbytes, each), np.repeat(buckets, each),
        np.repeat(seconds, each), depth,
    )  # fmt: skip
