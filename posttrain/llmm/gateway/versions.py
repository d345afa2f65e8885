"""Which version of the weights answers: by weight, by a header, or by what the trajectory began with.

Invariants: a trajectory keeps its version while that takes traffic; a change of weights takes hold with the next
request, and `rollback` brings back the weights before it at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.replicas import Replica
from posttrain.llmm.gateway.settings import GatewaySettings


class Version:
    def __init__(self, name: str, policy: int, replicas: list[Replica]):
        self.name, self.policy, self.replicas = name, policy, replicas


class Versions:
    def __init__(self, settings: GatewaySettings):
        self.by_name = {
            v.name: Version(v.name, v.policy, [Replica(url.rstrip("/")) for url in v.replicas])
            for v in settings.versions
        }
        self.weights = {v.name: v.weight for v in settings.versions}
        self._before: list[dict[str, float]] = []

    def choose(self, seed: str, *, pinned: str | None = None, kept: str | None = None) -> Version:
        """The version for a request. `seed` decides among the weights: the same one falls to the same version.

        Raises GatewayError (404) where `pinned` is no version.
        """
        if pinned is not None:
            if pinned not in self.by_name:
                raise GatewayError(404, f"no version {pinned!r}; there are {', '.join(self.by_name)}")
            return self.by_name[pinned]
        if kept is not None and self.weights.get(kept, 0) > 0:
            return self.by_name[kept]
        return self.by_name[pick(self.weights, seed)]

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Raises GatewayError (422) for weights that give the traffic to nobody."""
        unknown = [name for name in weights if name not in self.by_name]
        if unknown:
            raise GatewayError(422, f"no version {unknown[0]!r}; there are {', '.join(self.by_name)}")
        new = {name: float(weights.get(name, 0)) for name in self.by_name}
        if min(new.values()) < 0 or not sum(new.values()) > 0:
            raise GatewayError(422, "weights must not be negative, nor all 0")
        self._before.append(self.weights)
        self.weights = new

    def rollback(self) -> None:
        """Raises GatewayError (409) where the weights were never changed."""
        if not self._before:
            raise GatewayError(409, "the weights were never changed")
        self.weights = self._before.pop()

    @property
    def replicas(self) -> list[Replica]:
        return [replica for version in self.by_name.values() for replica in version.replicas]


def pick(weights: Mapping[str, float], seed: str) -> str:
    """A name, with the chance of its weight, the same for the same seed."""
    taken = [name for name, weight in weights.items() if weight > 0]
    if len(taken) == 1:
        return taken[0]
    place = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest()) / 2**64 * sum(weights.values())
    for name in taken:
        place -= weights[name]
        if place < 0:
            return name
    return taken[-1]
