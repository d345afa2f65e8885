"""One call of a vendor's model: what reaches the vendor, what comes back, and what the journal keeps of it.

Invariants: in the vendor's own dialect a request goes out as it was said and an answer comes back as it was given,
event by event; where the client speaks another one both cross, and what that lost is kept. What a vendor samples has no
ids here: it is in the ledger of a run and in no row of the stream.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import aiohttp
import msgspec

from posttrain.llmm import ir, trace
from posttrain.llmm.dialects import Dialect, dialect
from posttrain.llmm.dialects.crossing import Crossing, Kind, convert, fitted_frame
from posttrain.llmm.gateway.engine import events
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.journal import CallFailed, CallPassed
from posttrain.llmm.gateway.telemetry import begin_span, end_span
from posttrain.llmm.gateway.turn import Caller
from posttrain.llmm.gateway.vendors import Vendor, Vendors
from posttrain.llmm.ir.stream import End, Fold, Frame

JSON = dict[str, Any]
_decode = msgspec.json.Decoder().decode


class Passed:
    """One call of a vendor's model; to routes it is like a turn."""

    def __init__(self, vendors: Vendors, vendor: Vendor, caller: Caller, spoken: Dialect, body: JSON,
                 headers: Mapping[str, str], *, agent: str | None, stream: bool | None):  # fmt: skip
        self._vendors, self._vendor, self._caller, self._spoken, self._agent = vendors, vendor, caller, spoken, agent
        self.id, self.answered_by = uuid.uuid4().hex, vendor.name
        self.crosses = vendor.dialect != spoken.name
        self._there = dialect(vendor.dialect)
        self.request = spoken.lift_request(body)
        self.started, self._begun = time.time(), time.monotonic()
        self.first_token: float | None = None
        self._said, self._model = headers, self.request.model or ""
        self._body, self._crossings = body, list[trace.Converted]()
        if self.crosses:
            whole = caller.responses.resume(self.request)
            self.request = msgspec.structs.replace(self.request, messages=whole, previous=None)
            asked = {"stream": True} if stream else {}
            usage = {"stream_options": {"include_usage": True}} if stream and vendor.dialect == "openai_chat" else {}
            self._body = self._crossed(spoken.lower_request(self.request), "request").wire | asked | usage
        if vendor.dialect == "google_genai":
            self._body = {name: value for name, value in self._body.items() if name not in ("model", "stream")}
        self._response, self._recorded = ir.ChatResponse(choices=()), False

    def response(self) -> ir.ChatResponse:
        return self._response

    @property
    def usage(self) -> ir.Usage:
        usage = self._response.usage or ir.Usage()
        return msgspec.structs.replace(usage, total=usage.total or (usage.input or 0) + (usage.output or 0))

    async def deltas(self, *, stream: bool) -> AsyncGenerator[Frame, None]:
        """The frames of the answer; of one that is not streamed an empty one. Raises GatewayError."""
        trajectory, why = self._caller.trajectory, "a defect of the gateway"
        run = trajectory.opened.id if trajectory is not None else None
        span = begin_span(self._model, self.id, self._spoken.name, self.answered_by, run)
        if trajectory is not None:
            trajectory.calls += 1
        try:
            async with aclosing(self._frames() if stream else self._whole()) as frames:
                async for frame in frames:
                    self.first_token = self.first_token or time.monotonic() - self._begun
                    yield frame
            why = self._response.error.message if self._response.error is not None else ""
        except GatewayError as problem:
            why = problem.message
            raise
        except (GeneratorExit, asyncio.CancelledError):
            self._vendors.metrics.abandoned.inc()
            why = "the client left"
            raise
        finally:
            self._record(why)
            end_span(span, self.usage.input, self.usage.output, why)
            for kind, count in (("prompt", self.usage.input), ("sampled", self.usage.output)):
                self._vendors.metrics.tokens.labels(kind, self.answered_by).inc(count or 0)
            if trajectory is not None:
                trajectory.calls -= 1

    async def _whole(self) -> AsyncGenerator[Frame, None]:
        timeouts = self._vendors.timeouts
        async with self._answer(stream=False, seconds=timeouts.request) as answer, asyncio.timeout(timeouts.request):
            self._keep(_decode(await answer.read()))
        yield Frame()

    async def _frames(self) -> AsyncGenerator[Frame, None]:
        lifter, fold, ended = self._there.lifter(), Fold(), False
        timeouts = self._vendors.timeouts
        async with self._answer(stream=True, seconds=timeouts.first_token) as answer:
            until = self._begun + timeouts.request
            said = events(answer, until, timeouts.first_token, timeouts.between_tokens, marked=False)
            async for frame in _lifted(said, lifter):
                for delta in frame.deltas:
                    fold.add(delta)
                if not ended and any(isinstance(delta, End) for delta in frame.deltas):
                    ended = True
                    self._settle(fold.response())
                yield fitted_frame(frame) if self.crosses else frame
            if not ended:
                self._settle(fold.response())

    def _settle(self, response: ir.ChatResponse) -> None:
        """A stream is at its end: kept before its last event is given out, so that a client may go on at once."""
        self._response = response
        if response.error is not None:
            return
        if not response.choices or any(choice.stop is None for choice in response.choices):
            raise GatewayError(502, f"{self.answered_by}'s answer ended before it was whole")
        if self.crosses:
            self._keep(self._there.lower_response(response))
        self._record("")

    def _answer(self, *, stream: bool, seconds: float) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        address = self._vendor.address(self._model, stream=stream)
        return self._vendor.answer(self._vendors.http, address, self._body, self._said, seconds)

    def _keep(self, wire: JSON) -> None:
        """`wire` is the whole answer in the vendor's dialect."""
        if self.crosses:
            crossed = self._crossed(wire, "response")
            self._response = self._spoken.lift_response(crossed.wire)
            said = (*self.request.messages, *(choice.message for choice in self._response.choices[:1]))
            self._caller.responses.remember(self._response.id or "", said)
        else:
            self._response = self._there.lift_response(wire)

    def _crossed(self, wire: JSON, kind: Kind) -> Crossing:
        ends = (self._spoken.name, self._vendor.dialect)
        source, target = ends if kind == "request" else reversed(ends)
        crossing = convert(source, target, wire, kind)
        self._crossings.append(
            trace.Converted(
                id=f"{self.id}-{kind}", at=time.time(), cause=self.id, source=source, target=target, kind=kind,
                wire=wire, result=crossing.wire,
                losses=tuple(trace.Lost(loss.path, loss.value, loss.reason) for loss in crossing.losses),
            )
        )  # fmt: skip
        return crossing

    def _record(self, why: str) -> None:
        """Once. `why` the call failed; empty where it did not."""
        if self._caller.trajectory is None or self._recorded:
            return
        self._recorded = True
        call = ir.Call(
            id=self.id, dialect=self._spoken.name, request=self.request, response=None if why else self._response,
            started=self.started, seconds=time.time() - self.started, agent=self._agent,
        )  # fmt: skip
        self._vendors.trajectories.note(
            self._caller.trajectory,
            CallFailed(call=call, error=why, vendor=self.answered_by)
            if why
            else CallPassed(call=call, vendor=self.answered_by, conversions=tuple(self._crossings)),
        )


async def _lifted(said: AsyncIterator[bytes], lifter: Any) -> AsyncIterator[Frame]:
    async for data in said:
        yield lifter.lift(_decode(data))
    if hasattr(lifter, "finish"):
        yield lifter.finish()
