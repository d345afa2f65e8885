"""What the engines say of themselves: the version that they sample with, and how full their caches are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from posttrain.errors import UserError
from posttrain.rollout.sampler.pressure import Pressure
from posttrain.serving.weights import WEIGHT_INFO, version_number


class EngineLook:
    """Asks the engines at `urls`. Use as an async context manager."""

    def __init__(self, urls: Sequence[str], *, timeout: float = 5.0):
        self._urls, self._timeout = [url.rstrip("/") for url in urls], timeout

    async def __aenter__(self) -> EngineLook:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout), trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def versions(self) -> list[int]:
        """Of each engine that answers. An engine whose weights were never set has 0."""
        found = await asyncio.gather(*map(self._version, self._urls))
        return [version for version in found if version is not None]

    async def pressures(self) -> list[Pressure]:
        found = await asyncio.gather(*map(self._pressure, self._urls))
        return [pressure for pressure in found if pressure is not None]

    async def cache_tokens(self) -> int | None:
        """Tokens that the smallest engine's cache has room for; None where they do not say."""
        found = [tokens for tokens in await asyncio.gather(*map(self._cache, self._urls)) if tokens]
        return min(found, default=None)

    async def _version(self, url: str) -> int | None:
        try:
            async with self._http.get(url + WEIGHT_INFO) as answer:
                if answer.status == 404:
                    return 0
                answer.raise_for_status()
                label = (await answer.json())["weight_version"]
        except (aiohttp.ClientError, TimeoutError):
            return None
        return version_number(label)

    async def _metrics(self, url: str) -> str | None:
        try:
            async with self._http.get(f"{url}/metrics") as answer:
                answer.raise_for_status()
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _pressure(self, url: str) -> Pressure | None:
        text = await self._metrics(url)
        return None if text is None else pressure_of(text)

    async def _cache(self, url: str) -> int | None:
        text = await self._metrics(url)
        return None if text is None else cache_tokens_of(text)


def pressure_of(metrics: str) -> Pressure:
    """From the text of vLLM's /metrics. Pure."""
    used, waiting, preempted = 0.0, 0, 0
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "vllm:kv_cache_usage_perc":
                used = max(used, sample.value)
            elif sample.name == "vllm:num_requests_waiting":
                waiting += int(sample.value)
            elif sample.name == "vllm:num_preemptions_total":
                preempted += int(sample.value)
    return Pressure(used, waiting, preempted)


def cache_tokens_of(metrics: str) -> int | None:
    """Blocks times tokens of a block, from the text of vLLM's /metrics. Pure."""
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "vllm:cache_config_info":
                blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
                return int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else None
    return None


def check_room(trajectory_tokens: int, cache_tokens: int | None) -> None:
    """Raise UserError where the longest trajectory has no room in the cache."""
    if cache_tokens is not None and trajectory_tokens > cache_tokens:
        raise UserError(
            f"is more than the {cache_tokens} tokens that the engine's cache has room for",
            field="sampling.trajectory_tokens", value=trajectory_tokens,
            remedy="lower it, or raise engine.cache_gib (on a GPU: engine.gpu_memory_utilization)",
        )  # fmt: skip
