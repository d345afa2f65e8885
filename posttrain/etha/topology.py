"""The machines that a plan is made for: which rank is on which host, how fast the ways between them and the ranks are.

Rates are in bytes a second, latencies in seconds. A message between hosts passes the sender's port, the uplink of its
host, the uplink of the receiver's host and the receiver's port; one inside of a host passes that host's own link. Every
way is full duplex, except a host's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from posttrain.errors import UserError


@dataclass(frozen=True, slots=True)
class Rates:
    """What a rank reaches alone. `*_bytes` are bytes a second, `*_each` seconds for each transfer or bucket.

    A source gathers a bucket once, and sends it to each destination. What digests take is part of gathering and of
    loading. Where a source writes to the destination's memory itself, sending is that copy, and gathering only digests.
    """

    gather_bytes: float = 100e9  # from the local tensor into a bucket, without conversion
    encode_bytes: float = 20e9  # the same with conversion to another format, in bytes of the result
    send_bytes: float = math.inf  # the sender's own work for each destination; network cards leave none
    load_bytes: float = 100e9  # from the bucket to where the want's bytes lie
    gather_each: float = 5e-6
    load_each: float = 5e-6
    bucket_each: float = 50e-6  # the word that a bucket is there, at each end


@dataclass(frozen=True, slots=True)
class Host:
    """`local`: what the host's own link carries for all its ranks together; `uplink`: to other hosts, each way.

    `workers` is how many ranks can gather, encode or load at the same time: the processors where ranks work on those,
    else as many as there are ranks.
    """

    local: float = 200e9
    uplink: float = 400e9
    workers: int = 8


@dataclass(frozen=True, slots=True)
class Topology:
    """`sources[r]` and `destinations[r]` are the host's index of the rank."""

    hosts: tuple[Host, ...]
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    port: float = 50e9  # of one rank to other hosts, each way
    latency: float = 20e-6
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        for field_name in ("sources", "destinations"):
            for rank, host in enumerate(getattr(self, field_name)):
                if not 0 <= host < len(self.hosts):
                    raise UserError(
                        f"{field_name[:-1]} rank {rank} is on a host that is not given", field=field_name, value=host
                    )


def one_host(sources: int, destinations: int, host: Host | None = None, rates: Rates | None = None) -> Topology:
    return Topology((host or Host(),), (0,) * sources, (0,) * destinations, rates=rates or Rates())


def cluster(sources: int, destinations: int, per_host: int = 8, host: Host | None = None) -> Topology:
    """Sources on the first hosts, destinations on hosts of their own, `per_host` ranks on each."""
    first = -(-sources // per_host)
    count = first + -(-destinations // per_host)
    return Topology(
        (host or Host(workers=per_host),) * count,
        tuple(rank // per_host for rank in range(sources)),
        tuple(first + rank // per_host for rank in range(destinations)),
    )
