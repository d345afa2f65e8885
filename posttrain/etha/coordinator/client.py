"""The typed client of the coordinator, for publishers, receivers and people."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from posttrain.errors import UserError
from posttrain.etha.coordinator.view import ChecksView, PlanView, VersionsView
from posttrain.etha.layout import SourceLayout
from posttrain.etha.slices import Want
from posttrain.etha.wire import (
    Joined,
    JoinRank,
    JoinSource,
    RankBeat,
    RankPart,
    RankTold,
    SourceBeat,
    SourcePart,
    SourceTold,
)
from posttrain.service_client import ServiceClient, ServiceError

T = TypeVar("T")


class EthaClient(ServiceClient):
    """Raises ServiceError for a refusal and ServiceAway where the coordinator is not there for `patience` seconds."""

    def __init__(self, url: str, *, patience: float = 60.0, field: str = "etha.url"):
        super().__init__(url, field=field, patience=patience)

    def join_source(self, group: str, rank: int, asked: JoinSource) -> Joined:
        return self._typed("POST", f"/v1/sources/{group}/{rank}", Joined, asked)

    def join_rank(self, replica: str, rank: int, asked: JoinRank) -> Joined:
        return self._typed("POST", f"/v1/replicas/{replica}/{rank}", Joined, asked)

    def source_beats(self, key: str, beat: SourceBeat) -> SourceTold:
        return self._typed("POST", f"/v1/sources/{key}/beat", SourceTold, beat)

    def rank_beats(self, key: str, beat: RankBeat) -> RankTold:
        return self._typed("POST", f"/v1/replicas/{key}/beat", RankTold, beat)

    def leave(self, kind: str, key: str, epoch: int) -> None:
        """`kind` is sources or replicas."""
        self.send("DELETE", f"/v1/{kind}/{key}", query={"epoch": epoch})

    def specs(self, wait: float = 0.0) -> SourceLayout:
        """What the publishers hold, without their ranks. Raises UserError where nobody has said so within `wait`."""
        until = time.monotonic() + wait
        while True:
            try:
                return self._typed("GET", "/v1/specs", SourceLayout)
            except ServiceError as refused:
                if refused.status != 404:
                    raise
                if time.monotonic() >= until:
                    remedy = "start the trainer, or `posttrain etha push` a checkpoint"
                    raise UserError(refused.body["detail"], field=self._field, value=self.url, remedy=remedy) from None
            time.sleep(0.1)

    def source_part(self, plan: str, rank: int) -> SourcePart:
        return self._typed("GET", f"/v1/plans/{plan}/sources/{rank}", SourcePart)

    def rank_part(self, plan: str, rank: int) -> RankPart:
        return self._typed("GET", f"/v1/plans/{plan}/ranks/{rank}", RankPart)

    def versions(self) -> VersionsView:
        return self._typed("GET", "/versions", VersionsView)

    def abort(self, version: int) -> VersionsView:
        return self._typed("POST", f"/v1/versions/{version}/abort", VersionsView)

    def roll_back(self, version: int) -> VersionsView:
        return self._typed("POST", f"/v1/versions/{version}/rollback", VersionsView)

    def plan_of(self, replica: str) -> PlanView:
        return self._typed("GET", f"/v1/replicas/{replica}/plan", PlanView)

    def wants(self, key: str) -> tuple[Want, ...]:
        """Of REPLICA/RANK."""
        return self._typed("GET", f"/v1/replicas/{key}/wants", tuple[Want, ...])

    def check(self) -> ChecksView:
        """Have every rank look at what it holds; `checks` tells what they found."""
        return self._typed("POST", "/v1/checks", ChecksView)

    def checks(self) -> ChecksView:
        return self._typed("GET", "/v1/checks", ChecksView)

    def events(self, after: int = 0, limit: int = 1000) -> list[dict]:
        return self._typed("GET", f"/v1/events?after={after}&limit={limit}", list[dict])

    def _typed(self, method: str, path: str, answer: type[T], body: object = None) -> T:
        said = None if body is None else msgspec.json.encode(body).decode()
        return msgspec.json.decode(self.send(method, path, said).content, type=answer)
