"""The TaskServer over HTTP: `create_app(settings)`. What a body means is in api.py, what happens in server.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from posttrain.group_commit import Refused
from posttrain.json_text import LARGEST_WHOLE
from posttrain.rollout.tasks import api
from posttrain.rollout.tasks.model import Outcome, State
from posttrain.rollout.tasks.server import TaskServer
from posttrain.rollout.tasks.settings import TaskServerSettings
from posttrain.service import UNREADABLE, add_probes, limit_bodies

_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": api.Problem, "description": "There is no such thing."}}
_LATE: dict[int | str, dict[str, Any]] = {
    409: {"model": api.Reported, "description": "The attempt was over before: the result counts for nothing."}
}
_REFUSED: dict[int | str, dict[str, Any]] = {
    409: {"model": api.Problem, "description": "The key stands for another task, or the parent has ended."},
    503: {"model": api.Problem, "description": "The kind drains."},
}
TaskId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Digest = Annotated[str, Path(pattern=r"^sha256:[0-9a-f]{64}$")]


def create_app(settings: TaskServerSettings) -> FastAPI:
    """The application; the database is opened when it starts. Raises UserError where it cannot be opened."""
    server = TaskServer(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server:
            yield

    app = FastAPI(
        title="TaskServer", version="1", lifespan=lifespan, summary="Work by leases; each task ends once.",
        responses=UNREADABLE,
    )  # fmt: skip
    app.state.server = server
    limit_bodies(app, settings.largest_bytes)

    @app.exception_handler(Refused)
    async def refused(_: Request, problem: Refused) -> Response:
        return JSONResponse({"detail": problem.detail}, problem.status)

    @app.exception_handler(SQLAlchemyError)
    async def unavailable(_: Request, problem: SQLAlchemyError) -> Response:
        said = f"the database does not answer: {type(problem).__name__}"
        return JSONResponse({"detail": said}, 503, headers={"Retry-After": "1"})

    @app.post("/v1/tasks", responses=_NOT_FOUND | _REFUSED)
    async def submit(body: api.Submission) -> api.SubmittedAll:
        return api.SubmittedAll(tasks=await server.submit(body.tasks))

    @app.get("/v1/tasks")
    async def list_tasks(
        kind: Annotated[api.Name | None, Query()] = None,
        queue: Annotated[api.Name | None, Query()] = None,
        state: State | None = None,
        parent: Annotated[api.Id | None, Query()] = None,
        after: Annotated[int, Query(ge=0, le=LARGEST_WHOLE)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> api.TaskList:
        equal = {"kind": kind, "queue": queue, "state": state, "parent": parent}
        return await asyncio.to_thread(server.read.tasks, after, limit, **equal)

    @app.post("/v1/tasks/wait")
    async def wait(body: api.WaitFor) -> api.EndedAll:
        ended, unknown = await server.wait(body.ids, body.wait)
        return api.EndedAll(tasks=ended, unknown=sorted(unknown))

    @app.get("/v1/tasks/{task}", responses=_NOT_FOUND)
    async def show(task: TaskId) -> api.TaskDetail:
        found = await asyncio.to_thread(server.read.task, task)
        if found is None:
            raise Refused(404, f"there is no task {task!r}")
        return found

    @app.post("/v1/tasks/{task}/cancel", responses=_NOT_FOUND)
    async def cancel(task: TaskId) -> api.Cancelled:
        state, count = await server.cancel(task)
        return api.Cancelled(state=state, cancelled=count)

    @app.post("/v1/leases")
    async def lease(body: api.LeaseRequest, request: Request) -> api.Leases:
        if body.capacity:
            server.metrics.heard(body.worker, body.capacity, max(0, body.capacity - body.count))
        return api.Leases(leases=await server.lease(body, request.is_disconnected))

    @app.post("/v1/heartbeats")
    async def heartbeat(body: api.Heartbeat) -> api.HeartbeatAnswer:
        if body.capacity:
            server.metrics.heard(body.worker, body.capacity, len(body.attempts))
        return api.HeartbeatAnswer(lost=await server.heartbeat(body.attempts))

    @app.post("/v1/attempts")
    async def report(body: api.Reports) -> api.ReportedAll:
        return api.ReportedAll(reports=await server.report(body.reports))

    async def one(report: api.Report) -> Any:
        (answer,) = await server.report([report])
        if answer.status == "unknown":
            raise Refused(404, f"there is no attempt {report.attempt!r}")
        return JSONResponse(answer.model_dump(mode="json"), 409) if answer.status == "refused" else answer

    @app.post("/v1/attempts/{attempt}/complete", response_model=api.Reported, responses=_NOT_FOUND | _LATE)
    async def complete(attempt: TaskId, body: api.Completion) -> Any:
        return await one(api.Report(attempt=attempt, outcome=Outcome.succeeded, result=body.result))

    @app.post("/v1/attempts/{attempt}/fail", response_model=api.Reported, responses=_NOT_FOUND | _LATE)
    async def fail(attempt: TaskId, body: api.Failure) -> Any:
        outcome = Outcome(body.outcome)
        return await one(api.Report(attempt=attempt, outcome=outcome, reason=body.reason, result=body.result))

    @app.get("/v1/results/{digest}", response_model=Any, responses=_NOT_FOUND)
    async def result(digest: Digest) -> Response:
        """The value itself, as JSON."""
        found = await asyncio.to_thread(server.read.result, digest)
        if found is None:
            raise Refused(404, f"there is no result {digest}")
        return Response(found, media_type="application/json")

    @app.put("/v1/drain")
    async def drain(body: api.Draining) -> api.Status:
        await server.drain(body.kind, body.drain)
        return await server.status()

    @app.get("/v1/status")
    async def status() -> api.Status:
        return await server.status()

    async def serves() -> bool:
        await asyncio.to_thread(server.read.due, 0.0)
        return not server.closing

    add_probes(app, serves=serves, registry=server.metrics.registry)
    return app
