"""Who sends which box of which tensor to whom, in which order: a pure function of layouts, wants and topology.

A bucket is what travels at once: boxes that one source holds and all of the bucket's destinations want, encoded one
after the other without gaps. Invariants: every element of every want arrives exactly once; no bucket is larger than
asked, unless a single block of a format is; a bucket's number is its place in the order at its source and at its
destinations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from posttrain.etha.slices import Box

DIRECT = -1  # in `Bucket.relay`: straight from the source


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
