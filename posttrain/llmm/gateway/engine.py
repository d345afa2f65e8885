"""vLLM over HTTP by token ids: `/inference/v1/generate`, with the versions of the weights that sampled.

Invariants: a request is tried again, on another engine, only as long as nothing of its answer was given out; an
answer that ends without its last event is an error, never taken for whole; leaving the iteration ends the request
in the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.replicas import Replica, choose
from posttrain.llmm.gateway.settings import TimeoutSettings
from posttrain.llmm.gateway.telemetry import Metrics
from posttrain.llmm.gateway.versions import Version

JSON = dict[str, Any]
_PATH = "/inference/v1/generate"


class TokenLogprob(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float
    top_logprobs: list[TokenLogprob] = []


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob] | None = None


class WeightSpan(msgspec.Struct, frozen=True):
    """`version` sampled the output's tokens [start, end)."""

    version: str | int
    start: int
    end: int


class Piece(msgspec.Struct, frozen=True):
    """More of one sample. `stop_reason` is the text that ended it, where one did."""

    index: int
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    weight_versions: list[WeightSpan] | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[Piece] = []
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_encode = msgspec.json.Encoder().encode


class EngineLost(GatewayError):
    """The engine went away; `given` says whether something of the answer had been given out before."""

    def __init__(self, message: str, *, given: bool):
        super().__init__(502, message)
        self.given = given


class Engines:
    """The engines of all versions. Use as an async context manager."""

    def __init__(self, replicas: list[Replica], timeouts: TimeoutSettings, metrics: Metrics, *, retries: int,
                 health_seconds: float):  # fmt: skip
        self._replicas, self._timeouts, self._metrics = replicas, timeouts, metrics
        self._retries, self._health_seconds = retries, health_seconds
        self._addresses = {replica.url: URL(replica.url + _PATH) for replica in replicas}

    async def __aenter__(self) -> Engines:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, trust_env=False, auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(), headers={"Content-Type": "application/json"},
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        )  # fmt: skip
        self._watch = asyncio.create_task(self._look_after())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self._http.close()

    async def generate(
        self, version: Version, ids: tuple[int, ...], parameters: JSON, *, request: str, affinity: str, stream: bool
    ) -> AsyncGenerator[list[Piece], None]:
        """Pieces as they come; without `stream` all at once. Raises GatewayError, EngineLost among them."""
        body = {"request_id": request, "token_ids": ids, "sampling_params": parameters, "stream": stream}
        payload, tried = _encode(body), set[str]()
        until, last = time.monotonic() + self._timeouts.request, ""
        while True:
            replica = choose(version.replicas, affinity, tried)
            if replica is None:
                raise EngineLost(f"no engine of version {version.name} answers{last}", given=False)
            given = False
            replica.running += 1
            try:
                async with aclosing(self._ask(replica, payload, stream, until)) as pieces:
                    async for chunk in pieces:
                        given = True
                        yield chunk
                return
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as problem:
                if isinstance(problem, aiohttp.ClientConnectorError):
                    replica.healthy = False
                tried.add(replica.url)
                last = f": {str(problem) or type(problem).__name__}"
                if isinstance(problem, TimeoutError) and not isinstance(problem, aiohttp.ClientError):
                    raise GatewayError(504, "the engine took too long") from None
                if given or len(tried) > self._retries:
                    said = f"the engine was lost {'in the middle of' if given else 'before'} the answer"
                    raise EngineLost(f"{said}{last}", given=given) from None
                self._metrics.retries.labels(version.name).inc()
            finally:
                replica.running -= 1

    async def _ask(
        self, replica: Replica, payload: bytes, stream: bool, until: float
    ) -> AsyncGenerator[list[Piece], None]:
        first = self._timeouts.first_token if stream else self._timeouts.request
        async with asyncio.timeout(_left(until, first)):
            answer = await self._http.post(self._addresses[replica.url], data=payload)
        async with answer:
            async with asyncio.timeout(_left(until, first)):
                await _check(answer)
                whole = None if stream else _decode(await answer.read())
            if whole is not None:
                yield whole.choices
                return
            async for data in events(answer, until, first, self._timeouts.between_tokens):
                chunk = _decode(data)
                if chunk.error is not None:
                    raise aiohttp.ClientPayloadError(f"the engine says {str(chunk.error)[:200]}")
                yield chunk.choices

    async def healthy(self, replica: Replica) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=self._timeouts.connect)
            async with self._http.get(replica.url + "/health", timeout=timeout) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return False

    async def look(self) -> None:
        """Know how each engine is, now."""
        found = await asyncio.gather(*map(self.healthy, self._replicas))
        for replica, healthy in zip(self._replicas, found, strict=True):
            replica.healthy = healthy
            self._metrics.replica_up.labels(replica.url).set(healthy)
            self._metrics.replica_running.labels(replica.url).set(replica.running)

    async def _look_after(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._health_seconds)


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raise what an answer without success means: the client's fault, or the engine's."""
    if answer.status < 400:
        return
    text = (await answer.text())[:2000]
    try:
        said = msgspec.json.decode(text)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        said = text[:200]
    if answer.status == 404:
        raise GatewayError(502, f"the engine has no {_PATH}: start vLLM with --enable-scale-out")
    if answer.status in (400, 422):
        raise GatewayError(400, f"the engine refuses the request: {said}")
    raise aiohttp.ClientPayloadError(f"the engine answers {answer.status}: {said}")


def _left(until: float, most: float) -> float:
    """Seconds until then, at most `most`."""
    return max(0.0, min(most, until - time.monotonic()))


async def events(
    answer: aiohttp.ClientResponse, until: float, first: float, between: float, *, marked: bool = True
) -> AsyncIterator[bytes]:
    """The data of server-sent events, up to `[DONE]`. An end before that is an error where ends are `marked` so.

    What counts is the engine's time alone, `first` seconds for its first event and `between` for each that follows:
    how long the reader takes with a piece does not count.
    """
    rest, wait = b"", first
    while True:
        async with asyncio.timeout(_left(until, wait)):
            data = await answer.content.readany()
        if not data:
            break
        wait = between
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                event = line[5:].strip()
                if event == b"[DONE]":
                    return
                yield event
    if marked:
        raise aiohttp.ClientPayloadError("its stream ended before its last event")
