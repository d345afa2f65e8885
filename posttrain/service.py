"""What our HTTP services share: bounded bodies, probes, and a server that answers those who wait before it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CollectorRegistry, generate_latest
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from posttrain.errors import UserError

UNREADABLE: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is no text."},
    411: {"description": "The body's length is not told."},
    413: {"description": "The body is too large."},
}
_GRACE = 20  # seconds for requests in flight after SIGTERM


class LimitBodies:
    """Middleware: 413 for a body of more than `largest` bytes, 411 for one whose length is not told."""

    def __init__(self, app: ASGIApp, largest: int):
        self._app, self._largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response | None = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            length = headers.get("content-length", "0")
            if "transfer-encoding" in headers:
                answer = JSONResponse({"detail": "tell the body's length"}, 411)
            elif not length.isdigit() or int(length) > self._largest:
                answer = JSONResponse({"detail": f"the body is larger than {self._largest} bytes"}, 413)
        await (answer or self._app)(scope, receive, send)


def limit_bodies(app: FastAPI, largest: int) -> None:
    """Add `LimitBodies`, and answer 422 to a body that is nested too deeply to be read."""
    app.add_middleware(LimitBodies, largest=largest)

    @app.exception_handler(RecursionError)
    async def too_deep(_: Request, __: RecursionError) -> Response:
        return JSONResponse({"detail": "the body is nested too deeply"}, 422)


def add_probes(app: FastAPI, *, serves: Callable[[], Awaitable[bool]], registry: CollectorRegistry) -> None:
    """Add `/health`, `/ready` and `/metrics`. `serves` is whether the service goes on; raises where it cannot serve."""

    @app.get("/health", response_class=PlainTextResponse)
    async def health() -> str:
        """The process lives."""
        return "ok"

    @app.get("/ready", response_class=PlainTextResponse, responses={503: {"description": "It does not serve."}})
    async def ready() -> Response:
        """The database answers, and the service is not about to end."""
        return PlainTextResponse("ok", 200) if await serves() else PlainTextResponse("ends", 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        shown = await asyncio.to_thread(generate_latest, registry)
        return Response(shown, media_type="text/plain; version=0.0.4")


def serve(app: FastAPI, *, host: str, port: int, on_stop: Callable[[], None], field: str) -> None:
    """Serve until SIGTERM or SIGINT: then `on_stop` is called once, and requests in flight are answered.

    Raises UserError naming `field` where the port is taken.
    """
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as problem:
            why = str(problem.strerror).lower()
            raise UserError(f"cannot listen on {host}: {why}", field=field, value=port) from None
        Server(config, on_stop).run([listener])


class Server(uvicorn.Server):
    """`on_stop` is called when the process is told to end, before connections are waited for."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]):
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: Any = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)
