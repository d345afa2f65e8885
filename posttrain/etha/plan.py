"""Who sends which box of which tensor to whom, in which order: a pure function of layouts, wants and topology.

A bucket is what travels at once: boxes that one source holds and all of the bucket's destinations want, encoded one
after the other without gaps. Invariants: every element of every want arrives exactly once; no bucket is larger than
asked, unless a single block of a format is; a bucket's number is its place in the order at its source and at its
destinations.

Plans for thousands of ranks are made in seconds; they are tables, of which buckets become objects when looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from posttrain.errors import UserError
from posttrain.etha import relay
from posttrain.etha.demand import Demand
from posttrain.etha.layout import SourceLayout
from posttrain.etha.slices import Box, Want
from posttrain.etha.table import Rows, Table
from posttrain.etha.topology import Topology
from posttrain.etha.transfers import table_of

BUCKET_BYTES = 64 << 20
DIRECT = relay.DIRECT  # in `Bucket.relay`: straight from the source
FASTER = 0.95  # of the time that sending straight takes: what passing on must do better than


class Transfer(NamedTuple):
    """`box` of the tensor `name` (never an alias), in whole-tensor coordinates.

    It lies in piece `piece` of `source`'s `RankLayout.tensors[name]`, goes to `Plan.wants[want]`, and its encoded bytes
    begin at `offset` of the bucket.
    """

    name: str
    box: Box
    source: int
    piece: int
    want: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """`relay[i]` is the destination rank that passes the bucket on to `destinations[i]`, or DIRECT."""

    number: int
    source: int
    destinations: tuple[int, ...]
    relay: tuple[int, ...]
    nbytes: int
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """`wants` are the distinct wants of all destinations; `way` is how buckets for several destinations reach them."""

    wants: tuple[Want, ...]
    topology: Topology
    way: relay.Way
    table: Table

    @property
    def buckets(self) -> Sequence[Bucket]:
        """All buckets by number, made as they are looked at."""
        return _Buckets(self)

    def for_source(self, rank: int) -> tuple[Bucket, ...]:
        return tuple(self.bucket(number) for number in np.flatnonzero(self.table.source == rank).tolist())

    def for_destination(self, rank: int) -> tuple[Bucket, ...]:
        groups = [number for number, members in enumerate(self.table.groups) if rank in members]
        return tuple(self.bucket(number) for number in np.flatnonzero(np.isin(self.table.group, groups)).tolist())

    def bucket(self, number: int) -> Bucket:
        table, rows = self.table, self.table.rows
        part = slice(int(table.first[number]), int(table.first[number + 1]))
        source, group = int(table.source[number]), int(table.group[number])
        columns = (
            rows.name[part], rows.shape[part], rows.piece[part], rows.want[part], rows.nbytes[part],
        )  # fmt: skip
        transfers, offset = [], 0
        for name, shape, piece, want, nbytes in zip(*(column.tolist() for column in columns), strict=True):
            transfers.append(Transfer(table.names[name], table.shapes[shape].box, source, piece, want, offset, nbytes))
            offset += nbytes
        members = table.groups[group]
        if self.way == "direct":
            begin = int(table.begins_at[number])
            members = members[begin:] + members[:begin]
        above = relay.parents(self.way, self.topology.sources[source], members, self.topology)
        return Bucket(number, source, members, above, offset, tuple(transfers))

    @cached_property
    def link_bytes(self) -> Mapping[str, int]:
        """Bytes that will pass each way: `source 3 out`, `host 0 in`, `host 0 local`, `destination 7 in`, …"""
        from posttrain.etha.simulate import traffic

        return traffic(self)

    @cached_property
    def digest(self) -> str:
        """Of everything that the two sides go by."""
        table = self.table
        known = hashlib.sha256(repr((table.names, table.shapes, table.groups, self.wants, self.way)).encode())
        for column in (*(getattr(table.rows, c) for c in Rows.__slots__), table.first, table.source, table.group):
            known.update(np.ascontiguousarray(column, dtype=np.int64).tobytes())
        return known.hexdigest()


class _Buckets(Sequence[Bucket]):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return len(self.plan.table.source)

    @overload
    def __getitem__(self, number: int) -> Bucket: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Bucket]: ...
    def __getitem__(self, number: int | slice) -> Bucket | Sequence[Bucket]:
        if isinstance(number, slice):
            return [self.plan.bucket(one) for one in range(*number.indices(len(self)))]
        return self.plan.bucket(range(len(self))[number])


def plan(
    source: SourceLayout,
    wants: Sequence[Sequence[Want]],
    *,
    topology: Topology,
    bucket_bytes: int = BUCKET_BYTES,
    ways: Sequence[relay.Way] = relay.WAYS,
) -> Plan:
    """The plan by which rank d gets `wants[d]`; UserError naming the tensor where that cannot be.

    `ways` are those that buckets for several destinations may take; the fastest by the simulator is taken, the first
    unless another is faster by more than a twentieth.
    """
    for field, said, count in (
        ("sources", len(topology.sources), len(source.ranks)),
        ("destinations", len(topology.destinations), len(wants)),
    ):
        if said != count:
            raise UserError(f"the topology has {said} ranks where there are {count}", field=f"topology.{field}")
    if bucket_bytes < 1:
        raise UserError("must be at least 1", field="bucket_bytes", value=bucket_bytes)
    demand = Demand.of(wants)
    table = table_of(source, demand, topology, bucket_bytes)
    made = [Plan(demand.wants, topology, way, table) for way in ways]
    if len(made) == 1 or all(len(table.groups[group]) == 1 for group in np.unique(table.group).tolist()):
        return made[0]
    from posttrain.etha.simulate import simulate  # which is a function of plans

    seconds = [simulate(one).seconds for one in made]
    fastest = min(range(len(made)), key=seconds.__getitem__)
    return made[fastest if seconds[fastest] < FASTER * seconds[0] else 0]
