"""The coordinator over HTTP: `create_app(settings)`. Bodies are in ../wire.py; what happens is in server.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

import msgspec
from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from posttrain.etha.coordinator import events
from posttrain.etha.coordinator.server import Coordinator
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.coordinator.view import checks, versions
from posttrain.etha.wire import JoinRank, JoinSource, RankBeat, SourceBeat
from posttrain.group_commit import Refused
from posttrain.service import UNREADABLE, add_probes, limit_bodies

T = TypeVar("T")
_LARGEST = 1 << 30  # bytes of a layout, which grows with the tensors of a model
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
Number = Annotated[int, Path(ge=0)]


def create_app(settings: CoordinatorSettings) -> FastAPI:
    """The application. Raises UserError where the database cannot be opened."""
    server = Coordinator(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server:
            yield

    app = FastAPI(title="Etha", version="1", lifespan=lifespan, summary="Versions of weights.", responses=UNREADABLE)
    app.state.server = server
    limit_bodies(app, _LARGEST)

    @app.exception_handler(Refused)
    async def refused(_: Request, problem: Refused) -> Response:
        return JSONResponse({"detail": problem.detail}, problem.status)

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it: whoever asked was killed in the middle of it

    @app.post("/v1/sources/{group}/{rank}")
    async def join_source(group: Name, rank: Number, request: Request) -> Response:
        return _json(await server.join_source(group, rank, await _body(request, JoinSource)))

    @app.post("/v1/replicas/{replica}/{rank}")
    async def join_rank(replica: Name, rank: Number, request: Request) -> Response:
        return _json(await server.join_rank(replica, rank, await _body(request, JoinRank)))

    @app.post("/v1/sources/{group}/{rank}/beat")
    async def source_beats(group: Name, rank: Number, request: Request) -> Response:
        """What the member shall do, once that is other than what it has seen, or after `wait` seconds."""
        return _json(await server.source_beats(f"{group}/{rank}", await _body(request, SourceBeat)))

    @app.post("/v1/replicas/{replica}/{rank}/beat")
    async def rank_beats(replica: Name, rank: Number, request: Request) -> Response:
        """What the member shall do, once that is other than what it has seen, or after `wait` seconds."""
        return _json(await server.rank_beats(f"{replica}/{rank}", await _body(request, RankBeat)))

    @app.delete("/v1/sources/{group}/{rank}")
    async def source_leaves(group: Name, rank: Number, epoch: int) -> dict[str, bool]:
        await server.tell(events.Leaves("sources", f"{group}/{rank}", epoch))
        return {"left": True}

    @app.delete("/v1/replicas/{replica}/{rank}")
    async def rank_leaves(replica: Name, rank: Number, epoch: int) -> dict[str, bool]:
        await server.tell(events.Leaves("ranks", f"{replica}/{rank}", epoch))
        return {"left": True}

    @app.get("/v1/specs")
    async def specs() -> Response:
        return _json(await server.plans.specs(server.state))

    @app.get("/v1/plans/{plan}/sources/{rank}")
    async def source_part(plan: Name, rank: Number) -> Response:
        return _json(await server.plans.source_part(server.state, plan, rank))

    @app.get("/v1/plans/{plan}/ranks/{rank}")
    async def rank_part(plan: Name, rank: Number) -> Response:
        return _json(await server.plans.rank_part(server.state, plan, rank))

    @app.get("/versions")
    async def show() -> Response:
        """Versions, replicas and publishers as they are now."""
        return _json(versions(server.state))

    @app.post("/v1/versions/{version}/abort")
    async def abort(version: Number) -> Response:
        await server.tell(events.Abort(version))
        return _json(versions(server.state))

    @app.post("/v1/versions/{version}/rollback")
    async def roll_back(version: Number) -> Response:
        await server.tell(events.RollBack(version))
        return _json(versions(server.state))

    @app.get("/v1/replicas/{replica}/plan")
    async def plan(replica: Name) -> Response:
        return _json(await server.plans.plan_of(server.state, replica))

    @app.get("/v1/replicas/{replica}/{rank}/wants")
    async def wants(replica: Name, rank: Number) -> Response:
        return Response(await server.wants(f"{replica}/{rank}"), media_type="application/json")

    @app.post("/v1/checks")
    async def check() -> Response:
        """Have every rank look at what it holds; GET tells what they found."""
        await server.tell(events.Check())
        return _json(checks(server.state))

    @app.get("/v1/checks")
    async def checked() -> Response:
        return _json(checks(server.state))

    @app.get("/v1/events")
    async def list_events(
        after: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> Response:
        return _json(await asyncio.to_thread(server.store.events, after, limit))

    async def serves() -> bool:
        return not server.closing

    add_probes(app, serves=serves, registry=server.metrics.registry)
    return app


async def _body(request: Request, kind: type[T]) -> T:
    """Raises Refused naming the field that is wrong."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.DecodeError as problem:  # a ValidationError is one
        raise Refused(422, f"the body cannot be read: {problem}") from None


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
