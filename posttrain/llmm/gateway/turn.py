"""One call of the model, from a request of the IR to the deltas of its answer.

Invariants: whatever can be refused is refused before the engine is asked; a whole answer is in the journal before
its last delta is given out, so that a client that goes on at once meets its own history; an answer that is not
whole is noted as failed, and nothing of it is trained on.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm import ir, trace
from posttrain.llmm.gateway.assemble import Assembler
from posttrain.llmm.gateway.engine import Engines
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.journal import CallFailed
from posttrain.llmm.gateway.limits import KeyLimits
from posttrain.llmm.gateway.sampling import as_refusal, sampling_parameters
from posttrain.llmm.gateway.settings import GatewaySettings
from posttrain.llmm.gateway.telemetry import Metrics, begin_span, end_span
from posttrain.llmm.gateway.trajectories import Responses, Trajectories, Trajectory
from posttrain.llmm.gateway.versions import Version, Versions, pick
from posttrain.llmm.ir import stream as flow
from posttrain.llmm.tokens.history import History, Plan
from posttrain.llmm.tokens.model import ChatModel, Prompt

JSON = dict[str, Any]
log = logging.getLogger(__name__)
_PREFIXES = {"openai_chat": "chatcmpl-", "openai_responses": "resp_", "anthropic_messages": "msg_"}


@dataclass
class Caller:
    """Who asks: a client by name, or a run by its trajectory."""

    name: str
    limits: KeyLimits
    responses: Responses
    trajectory: Trajectory | None = None


@dataclass
class Service:
    """What calls share."""

    settings: GatewaySettings
    model: ChatModel
    engines: Engines
    versions: Versions
    trajectories: Trajectories
    metrics: Metrics
    shadows: set[asyncio.Task[None]]


class Turn:
    """A call that was accepted. Raises GatewayError where it cannot be."""

    def __init__(self, service: Service, caller: Caller, dialect: str, request: ir.ChatRequest, *, pinned: str | None,
                 agent: str | None = None):  # fmt: skip
        self._service, self._caller, self.dialect, self._agent = service, caller, dialect, agent
        self.id = _PREFIXES.get(dialect, "") + uuid.uuid4().hex
        self.started = time.time()
        self._begun = time.monotonic()
        self.request = ir_with_messages(request, caller.responses.resume(request))
        _check_model(service.settings, request.model)
        trajectory = caller.trajectory
        history = trajectory.history if trajectory else History(service.model.codec)
        self._prompt, self._plan = self._planned(history)
        kept = trajectory.version if trajectory else None
        seed = trajectory.opened.id if trajectory else self.id
        self.version = service.versions.choose(seed, pinned=pinned, kept=kept)
        if trajectory is not None:
            trajectory.version = self.version.name
        self._affinity = trajectory.opened.id if trajectory else _prefix(self._plan.ids)
        self._parameters = sampling_parameters(
            self.request, service.model, len(self._plan.ids), thinking=self._prompt.thinking
        )
        self._assembler = Assembler(
            service.model, self.request, response=self.id, name=request.model or service.settings.model,
            created=self.started, thinking=self._prompt.thinking, prompt_tokens=len(self._plan.ids),
            policy=self.version.policy,
        )  # fmt: skip
        self.first_token: float | None = None
        self.own_seconds = time.monotonic() - self._begun

    def _planned(self, history: History) -> tuple[Prompt, Plan]:
        trajectory = self._caller.trajectory
        try:
            now = trajectory.now if trajectory else None
            prompt = self._service.model.prompt(self.request, now=now, restore=history.restore)
        except UserError as problem:
            raise as_refusal(problem) from None
        return prompt, history.plan(prompt)

    def response(self) -> ir.ChatResponse:
        """The answer so far."""
        return self._assembler.response()

    @property
    def answered_by(self) -> str:
        return self.version.name

    @property
    def usage(self) -> ir.Usage:
        return self._assembler.usage

    async def deltas(self, *, stream: bool) -> AsyncGenerator[list[flow.Delta], None]:
        """The answer: the first list once the engine has begun. Raises GatewayError."""
        service, trajectory = self._service, self._caller.trajectory
        self._shadow()
        if trajectory is not None:
            trajectory.calls += 1
        done, why = False, ""
        run = trajectory.opened.id if trajectory is not None else None
        span = begin_span(service.settings.model, self.id, self.dialect, self.answered_by, run)
        try:
            pieces = service.engines.generate(
                self.version, self._plan.ids, self._parameters, request=self.id, affinity=self._affinity,
                stream=stream,
            )  # fmt: skip
            async with aclosing(pieces):
                async for chunk in pieces:
                    begin = self._assembler.begin() if self.first_token is None else []
                    self.first_token = self.first_token or time.monotonic() - self._begun
                    if deltas := [*begin, *self._assembler.take(chunk)]:
                        yield deltas
                    await asyncio.sleep(0)  # an engine that is never waited for must not keep others from their turn
            if not self._assembler.whole:
                raise GatewayError(502, "the engine ended the answer before it was whole")
            last = self._assembler.finish()
            self._record()
            done = True
            yield last
        except GatewayError as problem:
            why, done = problem.message, True
            self._fail(why)
            raise
        finally:
            if not done:
                why = "the client left"
                self._fail(why)
                service.metrics.abandoned.inc()
            if trajectory is not None:
                trajectory.calls -= 1
            self._count()
            end_span(span, self.usage.input, self.usage.output, why)

    def _record(self) -> None:
        """The turns of the trajectory that this call was: one for each sample."""
        response = self._assembler.response()
        self._caller.responses.remember(self.id, (*self.request.messages, *(c.message for c in response.choices[:1])))
        trajectory = self._caller.trajectory
        if trajectory is None:
            return
        asked, answer = ir_with_messages(self.request, ()), msgspec.structs.replace(response, choices=())
        losses = tuple(trace.Lost(lost.path, lost.value, lost.reason) for lost in self._prompt.given.untold)
        for number, (choice, sampled) in enumerate(zip(response.choices, self._assembler.sampled(), strict=True)):
            call = ir.Call(
                id=f"{self.id}.{number}" if number else self.id, dialect=self.dialect, request=asked,
                response=answer, started=self.started,
                seconds=time.time() - self.started, policy=sampled.policy[-1][0] if sampled.policy else None,
                agent=self._agent,
            )  # fmt: skip
            turn = ir.Turn(index=0, call=call, said=choice)
            self._service.trajectories.take(
                trajectory, self._plan, sampled, turn, self.request, version=self.version.name,
                losses=losses,
            )  # fmt: skip

    def _fail(self, why: str) -> None:
        if self._caller.trajectory is not None:
            call = ir.Call(
                id=self.id, dialect=self.dialect, request=self.request, started=self.started,
                seconds=time.time() - self.started, agent=self._agent,
            )  # fmt: skip
            failure = CallFailed(call=call, error=why, sampled=self.usage.output or 0)
            self._service.trajectories.note(self._caller.trajectory, failure)

    def _count(self) -> None:
        metrics, usage = self._service.metrics, self.usage
        metrics.tokens.labels("prompt", self.version.name).inc(usage.input or 0)
        metrics.tokens.labels("sampled", self.version.name).inc(usage.output or 0)
        if self.first_token is not None:
            metrics.first_token.labels(self.dialect).observe(self.first_token)
        metrics.own_seconds.labels(self.dialect).observe(self.own_seconds)

    def _shadow(self) -> None:
        """Ask the shadow's version the same, and forget what it says."""
        settings, versions = self._service.settings.shadow, self._service.versions
        if not settings.share or pick({"yes": settings.share, "no": 1 - settings.share}, self.id) == "no":
            return
        task = asyncio.create_task(self._ask_shadow(versions.by_name[settings.version]))
        self._service.shadows.add(task)
        task.add_done_callback(self._service.shadows.discard)

    async def _ask_shadow(self, version: Version) -> None:
        outcome, tokens = "answered", 0
        try:
            pieces = self._service.engines.generate(
                version, self._plan.ids, self._parameters, request=f"shadow-{self.id}", affinity=self._affinity,
                stream=False,
            )  # fmt: skip
            async for chunk in pieces:
                tokens += sum(len(piece.token_ids or ()) for piece in chunk)
        except GatewayError as problem:
            outcome = "failed"
            log.warning("shadow request to %s: %s", version.name, problem.message)
        self._service.metrics.shadow.labels(outcome).inc()
        self._service.metrics.tokens.labels("shadow", version.name).inc(tokens)


def ir_with_messages(request: ir.ChatRequest, messages: tuple[ir.Message, ...]) -> ir.ChatRequest:
    return msgspec.structs.replace(request, messages=messages)


def _check_model(settings: GatewaySettings, asked: str | None) -> None:
    if asked is not None and asked != settings.model and not settings.any_model:
        message = f"no model {asked!r}; there is {settings.model!r}"
        raise GatewayError(404, message, code="model_not_found", param="model")


def _prefix(ids: tuple[int, ...]) -> str:
    """Requests that begin alike find the same engine's cache."""
    return str(ids[:256])
