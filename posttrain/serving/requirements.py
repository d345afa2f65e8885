"""What a served model must show before it counts as released. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.errors import UserError


@dataclass
class Requirements:
    """Shares are of 1. `prompts` of the evaluation are asked again, `concurrency` at a time.

    `min_agreement` is the share of them whose answer must be the recorded one (asked for only where the evaluation
    took the likeliest tokens; a server batches otherwise than an evaluation, which may turn a near tie).
    `max_latency_p99_ms` 0 asks for none.
    """

    prompts: int = 64
    concurrency: int = 4
    repeats: int = 3  # prompts asked twice, one after the other, for the same text
    min_agreement: float = 0.85
    min_well_formed: float = 0.0  # 0: the evaluation's own rate, less what chance allows
    confidence: float = 0.99
    max_latency_p99_ms: float = 0.0
    timeout_seconds: float = 120.0  # of one request

    def __post_init__(self) -> None:
        for name, least in (("prompts", 1), ("concurrency", 1), ("repeats", 0)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least}", field=f"requirements.{name}", value=getattr(self, name))
        for name in ("min_agreement", "min_well_formed"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError("must lie in [0, 1]", field=f"requirements.{name}", value=getattr(self, name))
        if not 0.5 <= self.confidence < 1:
            raise UserError("must lie in [0.5, 1)", field="requirements.confidence", value=self.confidence)
        if self.timeout_seconds <= 0 or self.max_latency_p99_ms < 0:
            raise UserError("no time may be negative", field="requirements")
