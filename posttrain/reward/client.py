"""The typed client of the reward service.

with RewardClient("http://127.0.0.1:8400") as rewards:
    verdict = rewards.verdict(Ask(task="t1", trajectory="t1/0", verifier="math", answer="1/2", completion="0.5"))
    print(verdict.status, verdict.reward, verdict.evidence)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posttrain.reward.api import (
    LARGEST_BATCH,
    Ask,
    Batch,
    Replay,
    ReplayRequest,
    ServiceStatus,
    Verdict,
    Verdicts,
)
from posttrain.service_client import ServiceClient, in_parts


class RewardClient(ServiceClient):
    """Raises ServiceError for a refusal and ServiceAway where the service is not there for `patience` seconds."""

    def __init__(self, url: str, *, patience: float = 60.0, timeout: float = 600.0, field: str = "reward.url"):
        super().__init__(url, field=field, patience=patience, timeout=timeout)

    def verdict(self, ask: Ask) -> Verdict:
        return self.call("POST", "/v1/verdicts", Verdict, ask)

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        """In the order of `asks`, any number."""
        answers: list[Verdict] = []
        for part in in_parts(asks, LARGEST_BATCH):
            answers += self.call("POST", "/v1/verdicts/batch", Verdicts, Batch(questions=part)).verdicts
        return answers

    def replay(self, wanted: ReplayRequest) -> Iterator[Replay]:
        """Page by page, until everything that was stored has been computed again."""
        after: int | None = wanted.after
        while after is not None:
            page = self.call("POST", "/v1/replays", Replay, wanted.model_copy(update={"after": after}))
            yield page
            after = page.next

    def status(self) -> ServiceStatus:
        return self.call("GET", "/v1/status", ServiceStatus)
