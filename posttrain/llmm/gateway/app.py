"""The HTTP server: put together from settings, a model and a directory; `serve` runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from posttrain.llmm.gateway import control, routes
from posttrain.llmm.gateway.access import Access, admin_key
from posttrain.llmm.gateway.connection import Connection
from posttrain.llmm.gateway.engine import Engines
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.experience import Keeper
from posttrain.llmm.gateway.journal import Journal
from posttrain.llmm.gateway.limits import Admission
from posttrain.llmm.gateway.settings import GatewaySettings
from posttrain.llmm.gateway.telemetry import Metrics, gather_lines
from posttrain.llmm.gateway.trajectories import Trajectories
from posttrain.llmm.gateway.turn import Service
from posttrain.llmm.gateway.vendors import Vendors
from posttrain.llmm.gateway.versions import Versions
from posttrain.llmm.tokens.model import ChatModel

log = logging.getLogger(__name__)


def build(
    settings: GatewaySettings, model: ChatModel, directory: Path, *, stream: str = "", ledgers: str = ""
) -> FastAPI:
    """The application. `directory` takes the journal; `stream` is where the experience goes and `ledgers` where the
    runs' ledgers go, both resolved.

    Raises UserError for settings that do not fit the world, and what opening the stream raises.
    """
    metrics, versions = Metrics(), Versions(settings)
    journal = Journal(directory / "journal")
    keeper = Keeper(journal, settings.name, experience=stream, ledgers=ledgers)
    trajectories = Trajectories(settings, model, journal, keeper, metrics)
    access = Access(settings, trajectories, admin_key(settings, directory))
    engines = Engines(
        versions.replicas, settings.timeouts, metrics, retries=settings.retries, health_seconds=settings.health_seconds
    )
    service = Service(settings, model, engines, versions, trajectories, metrics, set())
    vendors = Vendors(settings.vendors, settings.timeouts, trajectories, metrics)
    calls = routes.Calls(service, access, Admission(settings.max_in_flight, settings.max_waiting), vendors)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        if interrupted := trajectories.recover():
            log.warning("%d trajectories that were open are closed as interrupted", interrupted)
        async with engines, vendors:
            await engines.look()
            yield
            await asyncio.gather(*service.shadows, return_exceptions=True)
        await asyncio.to_thread(keeper.close)

    app = FastAPI(
        title="posttrain gateway", lifespan=running, redoc_url=None, docs_url=None,
        description="Every vendor's interface to one policy, each run's trajectory kept as token ids.",
    )  # fmt: skip
    app.include_router(routes.router(calls))  # first: routes are tried in their order
    app.include_router(control.router(calls, keeper))

    @app.exception_handler(GatewayError)
    async def refused(http: Request, problem: GatewayError) -> Response:
        return control.refused(http, problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(http: Request, problem: RequestValidationError) -> Response:
        return control.refused(http, GatewayError(422, control.described(problem.errors())))

    @app.exception_handler(HTTPException)
    async def no_route(http: Request, problem: HTTPException) -> Response:
        return control.refused(http, GatewayError(problem.status_code, str(problem.detail)))

    return app


def serve(app: FastAPI, *, host: str, port: int, drain_seconds: float) -> None:
    """Until SIGTERM or SIGINT; then answers under way may end, for `drain_seconds`."""
    config = uvicorn.Config(
        app, host=host, port=port, loop="uvloop", http=Connection, ws="none", access_log=False, log_config=None,
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=round(drain_seconds),
        timeout_keep_alive=75, backlog=2048,
    )  # fmt: skip
    gather_lines()
    gc.collect()
    gc.freeze()  # what is there now stays: it need not be looked through again and again while requests wait
    uvicorn.Server(config).run()
