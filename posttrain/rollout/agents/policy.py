"""The policy as agents meet it: token ids go in, sampled ids with log-probabilities and versions come out.

Invariant: what was sampled stays: an answer that an update of the weights has aborted goes on from its own ids, and
its spans say which version sampled which of them.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from posttrain.llmm.gateway.engine import Engines, Piece
from posttrain.llmm.gateway.versions import Version
from posttrain.llmm.ir.tokens import joined
from posttrain.llmm.tokens.history import Sampled
from posttrain.llmm.tokens.model import ChatModel
from posttrain.serving.weights import version_number

JSON = dict[str, Any]
_PAUSED = 0.05  # seconds before an answer that an update has aborted is asked to go on


@dataclass(frozen=True)
class Policy:
    """`model` is what is known of it besides its weights; `version` names the engines that hold those."""

    model: ChatModel
    engines: Engines
    version: Version
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512  # of one answer
    trajectory_tokens: int = 2048
    repetition: JSON = field(default_factory=dict)  # vLLM's `repetition_detection`; empty: never

    async def sample(self, ids: tuple[int, ...], parameters: JSON, *, request: str, affinity: str) -> tuple[
        Sampled, Piece
    ]:  # fmt: skip
        """One answer to `ids`, and the last word of the engine on it. Raises EngineLost, GatewayError."""
        parts: list[Piece] = []
        asked = dict(parameters) | ({"repetition_detection": self.repetition} if self.repetition else {})
        while True:
            done = _joined(parts)
            left = asked["max_tokens"] - len(done.ids)
            if parts and left < 1:
                return done, Piece(index=0, finish_reason="length")
            last = await self._ask((*ids, *done.ids), asked | {"max_tokens": left}, f"{request}-{len(parts)}", affinity)
            parts.append(last)
            if last.finish_reason != "abort":
                return _joined(parts), last
            await asyncio.sleep(_PAUSED)

    async def _ask(self, ids: tuple[int, ...], parameters: JSON, request: str, affinity: str) -> Piece:
        found: list[Piece] = []
        pieces = self.engines.generate(self.version, ids, parameters, request=request, affinity=affinity, stream=False)
        async with aclosing(pieces):
            async for chunk in pieces:
                found += chunk
        (piece,) = found
        return piece


def _joined(parts: list[Piece]) -> Sampled:
    ids: list[int] = []
    logprobs: list[float] = []
    spans: list[tuple[int, int, int]] = []
    for piece in parts:
        shift, new = len(ids), piece.token_ids or []
        versions = piece.weight_versions or []
        spans += [(version_number(v.version), v.start + shift, v.end + shift) for v in versions if v.end > v.start]
        ids += new
        content = piece.logprobs.content or [] if piece.logprobs is not None else []
        logprobs += [entry.logprob for entry in content]
    return Sampled(tuple(ids), tuple(logprobs) if len(logprobs) == len(ids) else None, tuple(joined(spans)))
