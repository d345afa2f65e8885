"""Which engine takes a request. Choosing is pure; what is known of an engine is looked at once a while.

Invariants: an engine that is drained or that does not answer gets nothing new; a conversation stays where its
prefix is cached, unless that engine has clearly more to do than the one with the least.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

SLACK = 4  # requests that the engine with the cached prefix may have more than the least loaded


@dataclass
class Replica:
    url: str
    healthy: bool = True
    draining: bool = False
    running: int = 0

    @property
    def usable(self) -> bool:
        return self.healthy and not self.draining


def choose(
    replicas: Sequence[Replica], affinity: str, tried: Collection[str] = (), slack: int = SLACK
) -> Replica | None:
    """The engine for a conversation named `affinity`; None where there is none left.

    Its place is found by rendezvous hashing (Thaler and Ravishankar 1998): when one engine goes, only the
    conversations that it had move.
    """
    usable = [replica for replica in replicas if replica.usable and replica.url not in tried]
    if len(usable) < 2:
        return usable[0] if usable else None
    least = min(usable, key=lambda replica: replica.running)
    home = max(usable, key=lambda replica: _rank(affinity, replica.url))
    return home if home.running <= least.running + slack else least


def _rank(affinity: str, url: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\0{url}".encode(), digest_size=8).digest()
