"""How a bucket reaches several destinations: straight from its source, or passed on by some of them.

A way is a tree. The first destination on each host leads it; the others there have the bucket from the leader, or from
the source where that is on their host. Among leaders the source serves all ("hosts"), one that passes it along
("chain"), or two, each of which serves two more ("binary").
"""

from __future__ import annotations

from typing import Literal

from posttrain.etha.topology import Topology

Way = Literal["direct", "hosts", "chain", "binary"]
WAYS: tuple[Way, ...] = ("direct", "hosts", "chain", "binary")
DIRECT = -1  # straight from the source


def parents(way: Way, source_host: int, destinations: tuple[int, ...], topology: Topology) -> tuple[int, ...]:
    """For each destination the rank of the destination that passes the bucket on to it, or DIRECT."""
    if way == "direct":
        return (DIRECT,) * len(destinations)
    led: dict[int, int] = {}
    for rank in destinations:
        led.setdefault(topology.destinations[rank], rank)
    led.pop(source_host, None)
    leaders = list(led.values())
    above = {rank: DIRECT for rank in leaders}
    for number, rank in enumerate(leaders):
        if way == "chain" and number:
            above[rank] = leaders[number - 1]
        elif way == "binary" and number >= 2:
            above[rank] = leaders[(number - 2) // 2]
    return tuple(
        above[rank] if rank in above else led.get(topology.destinations[rank], DIRECT) for rank in destinations
    )


def depth(parents: tuple[int, ...], destinations: tuple[int, ...]) -> int:
    """Messages one after the other until the last destination has it."""
    above = dict(zip(destinations, parents, strict=True))
    deep: dict[int, int] = {DIRECT: 0}

    def of(rank: int) -> int:
        if rank not in deep:
            path = [rank]
            while path[-1] not in deep:
                path.append(above[path[-1]])
            for lower, upper in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
                deep[lower] = deep[upper] + 1
        return deep[rank]

    return max(map(of, destinations))
