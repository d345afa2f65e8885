"""New weights to the engines, as the loop of updates sees it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

import httpx

from posttrain.errors import UserError
from posttrain.serving.weights import WEIGHT_INFO, version_number
from posttrain.training.model import TrainedModel

log = logging.getLogger(__name__)


class Weights(Protocol):
    def push(self, version: int) -> dict[str, float]:
        """Give the model's weights as they are to every engine as `version`; seconds by phase. Raises UserError."""
        ...

    def close(self) -> None: ...


class Nowhere:
    """A replay, and measuring: the engines keep what they have."""

    def push(self, version: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


class ThroughEtha:
    """The engines of the sampler at `rollout` take versions from this trainer by the coordinator at `coordinator`."""

    def __init__(self, model: TrainedModel, *, rollout: str, coordinator: str, transport: str, keep: int,
                 version: int, timeout: float):  # fmt: skip
        from posttrain.etha.live import layout_of
        from posttrain.etha.publisher import Publisher

        held = layout_of(model.module)
        self._timeout = timeout
        self._publisher = Publisher(coordinator, held.layout, held.tensors, transport=transport, keep=keep)
        self._publisher.start()
        engines = engines_of(rollout)
        versions = [version_of(url) for url in engines]
        connect_engines(engines, versions, coordinator, transport)
        self._newest = max(versions, default=0)
        if min(versions, default=version) < version:
            self.push(version)

    def push(self, version: int) -> dict[str, float]:
        """What the engines have already, from before this trainer was started again, is not brought to them twice."""
        begun = time.monotonic()
        if version > self._newest:
            self._publisher.push(version, timeout=self._timeout, until="serving")
            self._newest = version
        else:
            log.info("version %d was computed again; the engines have %d", version, self._newest)
        return {"weights": time.monotonic() - begun}

    def close(self) -> None:
        self._publisher.close()


def engines_of(rollout: str) -> list[str]:
    """The addresses of a sampler's engines. Raises UserError."""
    try:
        answer = httpx.get(f"{rollout.rstrip('/')}/engines", timeout=30)
        answer.raise_for_status()
        return answer.json()
    except (httpx.HTTPError, ValueError) as problem:
        raise UserError(f"does not tell its engines: {problem}", field="rollout", value=rollout) from None


def version_of(engine: str) -> int:
    """Of an engine's weights; 0 before any was given to it. Raises UserError."""
    try:
        answer = httpx.get(engine + WEIGHT_INFO, timeout=30)
        answer.raise_for_status()
        return version_number(answer.json()["weight_version"])
    except (httpx.HTTPError, ValueError, KeyError) as problem:
        raise UserError(f"does not tell its version: {problem}", field="engines", value=engine) from None


def connect_engines(engines: Sequence[str], versions: Sequence[int], coordinator: str, transport: str) -> None:
    """Have each engine learn what it wants and register at the coordinator. Raises UserError."""
    for number, (url, version) in enumerate(zip(engines, versions, strict=True)):
        info = {
            "coordinator": coordinator, "replica": f"replica-{number}", "url": url, "transport": transport,
            "version": version,
        }  # fmt: skip
        try:
            httpx.post(f"{url}/init_weight_transfer_engine", json={"init_info": info}, timeout=600).raise_for_status()
        except httpx.HTTPError as problem:
            raise UserError(f"takes no weights: {problem}", field="engines", value=url) from None
