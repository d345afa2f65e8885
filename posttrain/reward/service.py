"""The reward service over HTTP: `create_app(settings)`. What a body means is in api.py, what happens in desk.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from posttrain.group_commit import Refused
from posttrain.json_text import LARGEST_WHOLE
from posttrain.reward import api
from posttrain.reward.desk import Desk
from posttrain.reward.model import Status
from posttrain.reward.settings import RewardSettings
from posttrain.service import UNREADABLE, add_probes, limit_bodies

_BUSY: dict[int | str, dict[str, Any]] = {503: {"model": api.Detail, "description": "Too many verdicts wait."}}


def create_app(settings: RewardSettings) -> FastAPI:
    """The application. Raises UserError where the index cannot be opened."""
    desk = Desk(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with desk:
            yield

    app = FastAPI(
        title="Reward service", version="1", lifespan=lifespan, summary="Verdicts, each computed once.",
        responses=UNREADABLE,
    )  # fmt: skip
    app.state.desk = desk
    limit_bodies(app, settings.largest_bytes)

    @app.exception_handler(Refused)
    async def refused(_: Request, problem: Refused) -> Response:
        return JSONResponse({"detail": problem.detail}, problem.status, headers={"Retry-After": "1"})

    @app.exception_handler(SQLAlchemyError)
    async def unavailable(_: Request, problem: SQLAlchemyError) -> Response:
        said = f"the index does not answer: {type(problem).__name__}"
        return JSONResponse({"detail": said}, 503, headers={"Retry-After": "1"})

    @app.post("/v1/verdicts", responses=_BUSY)
    async def verdict(body: api.Ask) -> api.Verdict:
        return (await desk.verdicts([body]))[0]

    @app.post("/v1/verdicts/batch", responses=_BUSY)
    async def batch(body: api.Batch) -> api.Verdicts:
        return api.Verdicts(verdicts=await desk.verdicts(body.questions))

    @app.get("/v1/verdicts")
    async def stored(
        verifier: Annotated[api.Name | None, Query()] = None,
        version: Annotated[api.Name | None, Query()] = None,
        status: Status | None = None,
        key: Annotated[api.Key | None, Query()] = None,
        after: Annotated[int, Query(ge=0, le=LARGEST_WHOLE)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> api.VerdictPage:
        equal = {"verifier": verifier, "version": version, "status": status, "key": key}
        verdicts, following = await desk.page(after, limit, **equal)
        return api.VerdictPage(verdicts=verdicts, next=following)

    @app.post("/v1/replays", responses=_BUSY)
    async def replay(body: api.ReplayRequest) -> api.Replay:
        return await desk.replay(body)

    @app.get("/v1/comparisons")
    async def compare(
        verifier: Annotated[api.Name, Query()],
        one: Annotated[api.Name, Query()],
        other: Annotated[api.Name, Query()],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[api.Difference]:
        """Questions answered under two versions of a verifier that came out otherwise."""
        return await desk.compare(verifier, one, other, limit)

    @app.get("/v1/status")
    async def status() -> api.ServiceStatus:
        return await desk.status()

    async def serves() -> bool:
        await desk.page(0, 1)
        return not desk.closing

    add_probes(app, serves=serves, registry=desk.registry)
    return app
