"""The vendors' routes: a request in a dialect to an answer in the same one, streamed or whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import request_response

from posttrain.errors import UserError
from posttrain.llmm.dialects import Dialect, dialect
from posttrain.llmm.dialects.session import session
from posttrain.llmm.gateway.access import Access
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.limits import Admission
from posttrain.llmm.gateway.passed import Passed
from posttrain.llmm.gateway.telemetry import log_request
from posttrain.llmm.gateway.turn import Caller, Service, Turn
from posttrain.llmm.gateway.vendors import Vendors
from posttrain.llmm.gateway.wire import EventStream, data_only, encode, error_response, gone, json_response, named
from posttrain.llmm.ir import stream as flow

JSON = dict[str, Any]
log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder().decode
Deltas = AsyncGenerator[list[flow.Delta], None] | AsyncGenerator[flow.Frame, None]
PIN = "x-posttrain-version"  # header: the version of the weights that shall answer


@dataclass
class Calls:
    """Takes requests in: who asks, may they, and what comes back."""

    service: Service
    access: Access
    admission: Admission
    vendors: Vendors

    async def answer(self, http: Request, name: str, change: Callable[[JSON], JSON] = lambda wire: wire,
                     stream: bool | None = None, as_json: bool = False) -> Response:  # fmt: skip
        """The answer to a request of the dialect `name`. `change` puts into the body what the path says;
        `stream` where the path says that, too."""
        request_id, started, metrics = uuid.uuid4().hex, time.monotonic(), self.service.metrics
        spoken, turn, caller = dialect(name), None, None
        timeouts = self.service.settings.timeouts

        def ended(status: str) -> None:
            metrics.running.dec()
            metrics.requests.labels(name, status).inc()
            metrics.seconds.labels(name).observe(time.monotonic() - started)
            self._log(request_id, name, status, time.monotonic() - started, caller, turn)

        metrics.running.inc()
        async with AsyncExitStack() as stack:
            try:
                caller = self.access.caller(http)
                body = await self.body(http)
                metrics.waiting.set(self.admission.queued)
                await stack.enter_async_context(self.admission.admitted())
                turn = self._turn(http, caller, spoken, change(body), stack, stream)
                wants = bool(turn.request.stream) if stream is None else stream
                deltas: Deltas = turn.deltas(stream=wants)
                stack.push_async_callback(deltas.aclose)
                if not wants:
                    response = await self._whole(http, spoken, deltas, turn)
                    ended("200")
                    return response
                first = await _until_gone(http, anext(deltas))
                held = stack.pop_all()
                own = isinstance(turn, Passed) and not turn.crosses
                pieces = _streamed(spoken, spoken.lowerer() if own else _lowerer(spoken, body), first, deltas, as_json)
                return EventStream(
                    pieces, held, request_id=request_id, client_seconds=timeouts.client, ended=ended,
                    as_json=as_json,
                )  # fmt: skip
            except GatewayError as problem:
                ended(str(problem.status))
                return error_response(problem, name, request_id)
            except _Gone:
                ended("client left")
                return Response(status_code=499)
            except Exception:
                log.exception("request %s", request_id)
                ended("500")
                return error_response(GatewayError(500, "a defect of the gateway"), name, request_id)

    def _turn(self, http: Request, caller: Caller, spoken: Dialect, body: JSON, stack: AsyncExitStack,
              stream: bool | None) -> Turn | Passed:  # fmt: skip
        caller.limits.enter()
        turn: Turn | Passed | None = None
        stack.callback(lambda: caller.limits.leave((turn.usage.total or 0) if turn is not None else 0))
        with _refusing():
            whose = session(http.headers, body) if caller.trajectory is not None else None
            agent = whose.child if whose is not None else None
            if (vendor := self.vendors.of(body.get("model"), spoken.name)) is not None:
                wants = body.get("stream") is True if stream is None else stream
                turn = Passed(self.vendors, vendor, caller, spoken, body, http.headers, agent=agent, stream=wants)
            else:
                request = spoken.lift_request(body)
                turn = Turn(self.service, caller, spoken.name, request, pinned=http.headers.get(PIN), agent=agent)
        if self.service.settings.log_contents:
            log_request(call=turn.id, request=body)
        return turn

    async def _whole(self, http: Request, spoken: Dialect, deltas: Deltas, turn: Turn | Passed) -> Response:
        async def consume() -> None:
            async with aclosing(deltas):
                async for _ in deltas:
                    pass

        await _until_gone(http, consume())
        return json_response(spoken.lower_response(turn.response()))

    async def body(self, http: Request) -> JSON:
        """The request's body. Raises GatewayError (400, 413)."""
        limit = self.service.settings.max_body_mib << 20
        if int(http.headers.get("content-length") or 0) > limit:
            raise GatewayError(413, f"the request is larger than {self.service.settings.max_body_mib} MiB")
        parts, size = [], 0
        async for part in http.stream():
            size += len(part)
            if size > limit:
                raise GatewayError(413, f"the request is larger than {self.service.settings.max_body_mib} MiB")
            parts.append(part)
        try:
            body = _decode(b"".join(parts))
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise GatewayError(400, f"the request is no JSON: {problem}") from None
        if not isinstance(body, dict):
            raise GatewayError(400, "the request is no JSON object")
        return body

    def _log(self, request_id: str, name: str, status: str, seconds: float, caller: Caller | None,
             turn: Turn | Passed | None) -> None:  # fmt: skip
        trajectory = caller.trajectory if caller else None
        log_request(
            request=request_id, dialect=name, status=status, seconds=round(seconds, 4),
            client=caller.name if caller else None, trajectory=trajectory.opened.id if trajectory else None,
            call=turn.id if turn else None, version=turn.answered_by if turn else None,
            prompt_tokens=turn.usage.input if turn else None, sampled_tokens=turn.usage.output if turn else None,
            first_token=round(turn.first_token, 4) if turn and turn.first_token else None,
        )  # fmt: skip


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What a client sent and cannot be taken, as 422.

    The IR does not look at each value's type: one of the wrong type shows when it is used.
    """
    try:
        yield
    except UserError as problem:
        raise GatewayError(422, str(problem), param=problem.field) from None
    except (TypeError, AttributeError, LookupError, ValueError, msgspec.MsgspecError) as problem:
        log.info("request refused", exc_info=problem)
        raise GatewayError(422, f"a field is not of its type: {problem}") from None


class _Gone(Exception):
    """The client left while nothing had been answered."""


async def _until_gone(http: Request, work: Any) -> Any:
    """What `work` returns, unless the client leaves before: then `work` is cancelled."""
    working: asyncio.Task[Any] = asyncio.ensure_future(work)
    leaving = asyncio.create_task(gone(http.receive))
    leaving.add_done_callback(lambda _: working.cancel())
    try:
        return await working
    except asyncio.CancelledError:
        if leaving.done():
            raise _Gone from None
        raise
    finally:
        leaving.cancel()


async def _streamed(
    spoken: Dialect, lowerer: Any, first: list[flow.Delta] | flow.Frame, deltas: Deltas, as_json: bool
) -> AsyncGenerator[bytes, None]:
    """The events of an answer, as bytes of the wire."""
    form, comma = _form(spoken.name), b"["

    def written(part: list[flow.Delta] | flow.Frame) -> bytes:
        nonlocal comma
        events = lowerer.lower(part if isinstance(part, flow.Frame) else flow.Frame(deltas=tuple(part)))
        if not as_json:
            return b"".join(map(form, events))
        out = b"".join(piece for event in events for piece in (comma if event is events[0] else b",", encode(event)))
        comma = b"," if events else comma
        return out

    try:
        yield written(first)
        async for part in deltas:
            if piece := written(part):
                yield piece
    except GatewayError as problem:
        yield written([flow.Broken(error=problem.failure(spoken.name))])
        if spoken.name == "openai_responses":
            yield written([flow.End()])
        return
    if spoken.name == "openai_chat":
        yield b"data: [DONE]\n\n"
    if as_json:
        yield b"]"


def _lowerer(spoken: Dialect, body: JSON) -> Any:
    if spoken.name == "openai_chat":
        options = body.get("stream_options")
        make: Any = spoken.lowerer
        return make(usage=isinstance(options, dict) and bool(options.get("include_usage")))
    return spoken.lowerer()


def _form(name: str) -> Callable[[JSON], bytes]:
    return named if name in ("anthropic_messages", "openai_responses") else data_only


_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
    "responses": {
        code: {"description": words, "content": {"application/json": {"schema": {"type": "object"}}}}
        for code, words in {
            "200": "the answer, or a stream of its events", "400": "no JSON, or a prompt that is too long",
            "401": "no key", "403": "the wrong key", "404": "no such model", "409": "the trajectory has ended",
            "413": "too large", "422": "a field that cannot be taken", "429": "over a limit",
            "500": "a defect", "502": "the engine was lost", "503": "no engine", "504": "too slow",
        }.items()
    },
}  # fmt: skip


class Straight(APIRoute):
    """A route that FastAPI describes in its document and does not stand in the way of: the endpoint reads the request,
    nothing is solved or checked for it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any):
        super().__init__(path, endpoint, **more)

        async def straight(http: Request) -> Response:
            return await endpoint(http, **http.path_params)

        self.app = request_response(straight)


def router(calls: Calls) -> APIRouter:
    """The routes of all dialects."""
    routes = APIRouter(route_class=Straight)

    @routes.post("/v1/chat/completions", openapi_extra=_BODY, tags=["OpenAI"])
    async def chat_completions(http: Request) -> Response:
        return await calls.answer(http, "openai_chat")

    @routes.post("/v1/responses", openapi_extra=_BODY, tags=["OpenAI"])
    async def responses(http: Request) -> Response:
        return await calls.answer(http, "openai_responses")

    @routes.post("/v1/messages", openapi_extra=_BODY, tags=["Anthropic"])
    async def messages(http: Request) -> Response:
        return await calls.answer(http, "anthropic_messages")

    @routes.post("/v1/messages/count_tokens", openapi_extra=_BODY, tags=["Anthropic"])
    async def count_tokens(http: Request) -> Response:
        return await _counted(calls, http, "anthropic_messages", None, lambda n: {"input_tokens": n})

    @routes.post("/v1/models/{call:path}", openapi_extra=_BODY, tags=["Google"])
    @routes.post("/v1beta/models/{call:path}", openapi_extra=_BODY, tags=["Google"])
    async def google(http: Request, call: str) -> Response:
        model, _, method = call.rpartition(":")

        def named_model(wire: JSON) -> JSON:
            return {**wire, "model": model}

        if method == "generateContent":
            return await calls.answer(http, "google_genai", named_model, stream=False)
        if method == "streamGenerateContent":
            as_json = http.query_params.get("alt") != "sse"
            return await calls.answer(http, "google_genai", named_model, stream=True, as_json=as_json)
        if method == "countTokens":
            return await _counted(calls, http, "google_genai", model, lambda n: {"totalTokens": n})
        return error_response(GatewayError(404, f"no method {method!r}"), "google_genai", "")

    return routes


async def _counted(calls: Calls, http: Request, name: str, model: str | None, shown: Callable[[int], JSON]) -> Response:
    """How many tokens the prompt of a request has."""
    try:
        calls.access.caller(http)
        body = await calls.body(http)
        if (vendor := calls.vendors.of(model or body.get("model"), name)) is not None:
            return json_response(await calls.vendors.count(vendor, name, model or "", body, http.headers))
        with _refusing():
            prompt = calls.service.model.prompt(dialect(name).lift_request(body.get("generateContentRequest", body)))
        return json_response(shown(len(calls.service.model.codec.encode(prompt.text))))
    except GatewayError as problem:
        return error_response(problem, name, "")
