"""Answers on the wire: JSON, and streams of events in each vendor's form.

Invariants: a stream's status is decided before its first byte, so that an error before it is an error's answer; one
that comes later is the vendor's event for it. A client that leaves, or that takes too long to receive a piece, ends
the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.ir.origin import Json

encode = msgspec.json.Encoder().encode
_SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_JSON = [(b"content-type", b"application/json")]


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(body), status, headers, media_type="application/json")


def error_response(problem: GatewayError, dialect: str, request_id: str) -> Response:
    headers = {"x-request-id": request_id, "request-id": request_id}
    if problem.retry_after is not None:
        headers["retry-after"] = str(max(1, round(problem.retry_after)))
    return json_response(problem.body(dialect), problem.status, headers)


def data_only(event: Json) -> bytes:
    return b"data: " + encode(event) + b"\n\n"


def named(event: Json) -> bytes:
    """With the event's name on a line of its own, as Anthropic and OpenAI's Responses do."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + encode(event) + b"\n\n"


class EventStream(Response):
    """Sends what `pieces` gives. Whatever happens, `held` is let go, and `ended` is told how it came out."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], held: AsyncExitStack, *, request_id: str,
                 client_seconds: float, ended: Callable[[str], None], as_json: bool = False):  # fmt: skip
        self._pieces, self._held, self._client_seconds, self._ended = pieces, held, client_seconds, ended
        self._head = [*(_JSON if as_json else _SSE), (b"x-request-id", request_id.encode())]
        self.status_code, self.background = 200, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(gone(receive))
        outcome = "200"
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                outcome = "client left"
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
            if isinstance(results[0], TimeoutError | OSError):
                outcome = "client left"
            await self._held.aclose()
            self._ended(outcome)
        if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError | OSError):
            raise results[0]

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._head})
        async with aclosing(self._pieces):
            async for piece in self._pieces:
                body = {"type": "http.response.body", "body": piece, "more_body": True}
                async with asyncio.timeout(self._client_seconds):  # wait_for of Python 3.11 may swallow a cancellation
                    await send(body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
