"""Pass-through: outside vendors, asked in the policy's place for some models.

Invariants: a client's key never reaches a vendor, nor a vendor's key a client; a vendor's error is told in its own
words, but one about the gateway's key is no fault of the client's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from posttrain.errors import UserError
from posttrain.llmm.gateway.errors import GatewayError, VendorError
from posttrain.llmm.gateway.settings import TimeoutSettings, VendorSettings
from posttrain.llmm.gateway.telemetry import Metrics
from posttrain.llmm.gateway.trajectories import Trajectories

JSON = dict[str, Any]
_HANDED_ON = ("anthropic-version", "anthropic-beta", "openai-beta")  # headers that say how a body is meant
_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


class Vendor:
    """One vendor with its key. Raises UserError where the variable of the key is not set."""

    def __init__(self, settings: VendorSettings, environment: Mapping[str, str]):
        self.name, self.dialect, self.models = settings.name, settings.dialect, settings.models
        self._url, self._key = settings.url.rstrip("/"), environment.get(settings.variable, "")
        if not self._key:
            raise UserError("is not set", field=settings.variable, remedy=f"put the key of {self.name} into it")

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    def address(self, model: str, *, stream: bool) -> str:
        match self.dialect:
            case "openai_chat":
                return f"{self._url}/chat/completions"
            case "openai_responses":
                return f"{self._url}/responses"
            case "anthropic_messages":
                return f"{self._url}/v1/messages"
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{self._url}/v1beta/models/{model}:{method}"

    def counting(self, model: str) -> str:
        own = self.address(model, stream=False)
        return f"{own}/count_tokens" if self.dialect == "anthropic_messages" else own.replace("generateC", "countT", 1)

    def _headers(self, said: Mapping[str, str]) -> dict[str, str]:
        """`said` are the client's."""
        handed = {name: said[name] for name in _HANDED_ON if name in said}
        match self.dialect:
            case "anthropic_messages":
                return {"anthropic-version": "2023-06-01"} | handed | {"x-api-key": self._key}
            case "google_genai":
                return {"x-goog-api-key": self._key}
        return handed | {"authorization": f"Bearer {self._key}"}

    @asynccontextmanager
    async def answer(
        self, http: aiohttp.ClientSession, address: str, body: JSON, said: Mapping[str, str], seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The vendor's answer, begun within `seconds`. Raises GatewayError, also for what goes wrong within."""
        headers = self._headers(said) | {"content-type": "application/json"}
        try:
            async with asyncio.timeout(seconds):
                answer = await http.post(address, data=_encode(body), headers=headers)
            async with answer:
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    raise self._refused(answer, await answer.read())
                yield answer
        except TimeoutError:
            raise GatewayError(504, f"{self.name} took too long") from None
        except (aiohttp.ClientError, ConnectionError) as problem:
            raise GatewayError(502, f"{self.name} was lost: {problem or type(problem).__name__}") from None
        except (msgspec.DecodeError, UserError) as problem:
            raise GatewayError(502, f"{self.name} answers what is none of {self.dialect}: {problem}") from None

    def _refused(self, answer: aiohttp.ClientResponse, body: bytes) -> VendorError | GatewayError:
        """The vendor's own error. One that is about the gateway's key is no fault of the client's."""
        try:
            wire = _decode(body)
            said = wire["error"]["message"]
        except (msgspec.DecodeError, KeyError, TypeError):
            wire, said = None, body[:200].decode(errors="replace")
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return GatewayError(502, f"{self.name} does not take the gateway's key: {said}")
        after = answer.headers.get("retry-after", "")
        return VendorError(
            answer.status, f"{self.name} answers {answer.status}: {said}", dialect=self.dialect, wire=wire,
            retry_after=float(after) if after.isdecimal() else None,
        )  # fmt: skip


class Vendors:
    """All vendors. Use as an async context manager."""

    def __init__(self, settings: list[VendorSettings], timeouts: TimeoutSettings, trajectories: Trajectories,
                 metrics: Metrics, environment: Mapping[str, str] = os.environ):  # fmt: skip
        self._vendors = [Vendor(each, environment) for each in settings]
        self.timeouts, self.trajectories, self.metrics = timeouts, trajectories, metrics

    async def __aenter__(self) -> Vendors:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect)
        self.http = aiohttp.ClientSession(timeout=timeout, trust_env=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    def of(self, model: Any, spoken: str) -> Vendor | None:
        """Who serves the model, in the client's dialect where there is a choice; None: it is the policy's."""
        found = [vendor for vendor in self._vendors if isinstance(model, str) and vendor.serves(model)]
        return next((vendor for vendor in found if vendor.dialect == spoken), next(iter(found), None))

    async def count(self, vendor: Vendor, spoken: str, model: str, body: JSON, said: Mapping[str, str]) -> JSON:
        """The vendor's own count of a prompt's tokens, in its dialect. Raises GatewayError."""
        if spoken != vendor.dialect:
            raise GatewayError(404, f"{vendor.name} counts no tokens of {spoken}")
        async with vendor.answer(self.http, vendor.counting(model), body, said, self.timeouts.first_token) as answer:
            return _decode(await answer.read())
