"""Settings of the coordinator. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.units import at_least

PAUSES = ("keep", "wait", "abort")


@dataclass
class CoordinatorSettings:
    """`pause` says what becomes of requests in flight while an engine changes its weights: kept ones go on afterwards
    and carry the span of tokens of each version, others are waited for or aborted."""

    database: str = "etha.db"
    lease_seconds: float = 10.0  # a member that is not heard of for so long counts as lost
    transfer_seconds: float = 600.0  # after which a version is decided without those who do not hold it
    commit_seconds: float = 300.0  # for one engine to change its weights
    pause: str = "keep"
    max_unavailable: int = 1  # replicas that change their weights at the same time
    tries: int = 3  # transfers of a version to a replica before it is left behind
    retry_seconds: float = 1.0  # after a failure, doubled with each
    bucket_bytes: int = 8 << 20
    keep_versions: int = 1000  # ended ones that are remembered

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "transfer_seconds", "commit_seconds", "retry_seconds"):
            if not getattr(self, name) > 0:
                raise UserError("must be more than 0", field=name, value=getattr(self, name))
        for name, least in (("max_unavailable", 1), ("tries", 1), ("bucket_bytes", 4096), ("keep_versions", 1)):
            at_least(name, getattr(self, name), least)
        if self.pause not in PAUSES:
            raise UserError("is no policy", field="pause", value=self.pause, remedy=f"one of {', '.join(PAUSES)}")
