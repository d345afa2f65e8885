"""Routes of the platform's own: trajectories, versions of the weights, engines, health, metrics, models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Body, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.experience import Keeper
from posttrain.llmm.gateway.routes import Calls
from posttrain.llmm.gateway.trajectories import STATUSES
from posttrain.llmm.gateway.wire import error_response, json_response

JSON = dict[str, Any]


class NewTrajectory(BaseModel):
    """`group`: samples of one task that are compared with each other (the task itself unless given)."""

    model_config = ConfigDict(extra="forbid")
    task: str = Field(min_length=1, max_length=1000)
    group: str | None = Field(default=None, max_length=1000)
    id: str | None = Field(default=None, max_length=100)
    metadata: dict[str, str] = {}


class Ending(BaseModel):
    """How a trajectory ended; a reward where one is known already."""

    model_config = ConfigDict(extra="forbid")
    status: str = "finished"
    reward: float | None = Field(default=None, allow_inf_nan=False)
    details: dict[str, Any] | None = None


_FINISHED = Body(Ending())


class Weights(BaseModel):
    """Version -> its share of the traffic."""

    model_config = ConfigDict(extra="forbid")
    weights: dict[str, float]


class Engine(BaseModel):
    """`draining`: it gets nothing new, and what it has it may end."""

    model_config = ConfigDict(extra="forbid")
    url: str
    draining: bool


def router(calls: Calls, keeper: Keeper) -> APIRouter:
    routes = APIRouter(tags=["platform"])
    service, access = calls.service, calls.access
    settings, versions, trajectories = service.settings, service.versions, service.trajectories

    @routes.post("/trajectories", status_code=201)
    async def open_trajectory(http: Request, wanted: NewTrajectory) -> Response:
        access.check_admin(http)
        opened, key = trajectories.open(task=wanted.task, group=wanted.group, name=wanted.id, metadata=wanted.metadata)
        return json_response({"id": opened.opened.id, "key": key}, 201)

    @routes.get("/trajectories/{name}")
    async def show_trajectory(http: Request, name: str) -> Response:
        found = _owned(http, name)
        return json_response(found.describe())

    @routes.post("/trajectories/{name}/finish")
    async def finish(http: Request, name: str, ending: Ending = _FINISHED) -> Response:
        if ending.status not in STATUSES:
            raise GatewayError(422, f"must be one of {', '.join(STATUSES)}", param="status")
        if name in trajectories:
            _owned(http, name)
        else:
            access.check_admin(http)
        return json_response(await trajectories.finish(name, ending.status, ending.reward, ending.details))  # type: ignore[arg-type]

    @routes.get("/versions")
    async def show_versions(http: Request) -> Response:
        access.check_admin(http)
        return json_response(_versions())

    @routes.put("/versions")
    async def set_weights(http: Request, wanted: Weights) -> Response:
        access.check_admin(http)
        versions.set_weights(wanted.weights)
        return json_response(_versions())

    @routes.post("/versions/rollback")
    async def rollback(http: Request) -> Response:
        access.check_admin(http)
        versions.rollback()
        return json_response(_versions())

    @routes.put("/engines")
    async def set_engine(http: Request, wanted: Engine) -> Response:
        access.check_admin(http)
        found = [replica for replica in versions.replicas if replica.url == wanted.url.rstrip("/")]
        if not found:
            raise GatewayError(404, f"no engine {wanted.url!r}")
        for replica in found:
            replica.draining = wanted.draining
        return json_response(_versions())

    @routes.get("/health")
    async def health() -> Response:
        """200 while the gateway can answer and keep what it answers."""
        if keeper.failure is not None:
            return json_response({"status": "trajectories cannot be kept", "problem": str(keeper.failure)}, 503)
        if not any(replica.usable for replica in versions.replicas):
            return json_response({"status": "no engine answers"}, 503)
        return json_response({"status": "ok"})

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/v1/models")
    @routes.get("/v1beta/models")
    async def models(http: Request) -> Response:
        access.caller(http)
        if said_as(http) == "google_genai":
            return json_response({"models": [_model(http)]})
        ends = {"has_more": False, "first_id": settings.model, "last_id": settings.model}
        return json_response({"object": "list", "data": [_model(http)]} | ends)

    @routes.get("/v1/models/{name:path}")
    @routes.get("/v1beta/models/{name:path}")
    async def model(http: Request, name: str) -> Response:
        access.caller(http)
        if name != settings.model and not settings.any_model:
            raise GatewayError(404, f"no model {name!r}; there is {settings.model!r}", code="model_not_found")
        return json_response(_model(http))

    def _owned(http: Request, name: str) -> Any:
        """The trajectory, for the gateway's own key or its own."""
        if name in trajectories and access.may_finish(http, trajectories.find(name).opened.key):
            return trajectories.find(name)
        access.check_admin(http)
        return trajectories.find(name)

    def _versions() -> JSON:
        return {
            name: {
                "weight": versions.weights[name], "policy": version.policy,
                "replicas": [
                    {"url": r.url, "healthy": r.healthy, "draining": r.draining, "running": r.running}
                    for r in version.replicas
                ],
            }
            for name, version in versions.by_name.items()
        }  # fmt: skip

    def _model(http: Request) -> JSON:
        name, length = settings.model, service.model.context_length
        match said_as(http):
            case "google_genai":
                methods = ["generateContent", "streamGenerateContent", "countTokens"]
                return {
                    "name": f"models/{name}", "displayName": name, "inputTokenLimit": length,
                    "outputTokenLimit": length, "supportedGenerationMethods": methods,
                }  # fmt: skip
            case "anthropic_messages":
                return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        return {"id": name, "object": "model", "created": 0, "owned_by": "posttrain"}

    return routes


def said_as(http: Request) -> str:
    """The dialect of whoever asks, where the route is not one dialect's own."""
    path = http.url.path
    if path.startswith("/v1/messages") or "anthropic-version" in http.headers:
        return "anthropic_messages"
    google = path.startswith("/v1beta") or "x-goog-api-key" in http.headers
    return "google_genai" if google else "openai_chat"


def refused(http: Request, problem: GatewayError) -> Response:
    return error_response(problem, said_as(http), "")


def described(errors: Any) -> str:
    """Pydantic's complaints in one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc'][1:])) or 'body'}: {each['msg']}" for each in errors)
