"""What the gateway tells of itself: Prometheus metrics, OpenTelemetry spans, one line of log for each request.

Invariants: nothing that a message says is in any of them, unless the settings ask for it in the log; keys never are.
Spans bear the names of OpenTelemetry's conventions for generative models; they go where the usual OTEL_* variables
say, and nowhere without them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import msgspec
from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

log = logging.getLogger("posttrain.gateway")
_encode = msgspec.json.Encoder().encode
_TOGETHER = 0.05  # seconds that lines of the log may wait for each other
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Of one gateway: several may run in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        name = "posttrain_gateway_"
        self.requests = Counter(
            name + "requests", "Requests by dialect and status", ["dialect", "status"], registry=registry
        )
        self.running = Gauge(name + "running", "Requests under way", registry=registry)
        self.waiting = Gauge(name + "waiting", "Requests in the queue", registry=registry)
        self.seconds = Histogram(
            name + "seconds", "From request to last byte", ["dialect"], buckets=_SECONDS, registry=registry
        )
        self.first_token = Histogram(
            name + "first_token_seconds", "From request to first token", ["dialect"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self.own_seconds = Histogram(
            name + "own_seconds", "Spent before the engine is asked", ["dialect"], buckets=_SECONDS, registry=registry
        )
        self.tokens = Counter(name + "tokens", "Tokens by kind", ["kind", "version"], registry=registry)
        self.turns = Counter(name + "turns", "Turns of trajectories", registry=registry)
        self.forks = Counter(
            name + "forks", "Turns that could not go on from sampled ids", ["reason"], registry=registry
        )
        self.trajectories = Counter(name + "trajectories", "Trajectories closed", ["status"], registry=registry)
        self.open = Gauge(name + "open_trajectories", "Trajectories that are open", registry=registry)
        self.abandoned = Counter(name + "abandoned", "Answers whose client left", registry=registry)
        self.retries = Counter(name + "retries", "Requests asked of another engine", ["version"], registry=registry)
        self.replica_up = Gauge(name + "replica_up", "Whether an engine answers", ["replica"], registry=registry)
        self.replica_running = Gauge(
            name + "replica_running", "Requests under way in an engine", ["replica"], registry=registry
        )
        self.shadow = Counter(name + "shadow", "Shadow requests by outcome", ["outcome"], registry=registry)


tracer = trace.get_tracer("posttrain.gateway")


def begin_span(model: str, call: str, dialect: str, version: str, trajectory: str | None) -> trace.Span:
    """The span of one call, to be ended by `end_span`."""
    span = tracer.start_span(f"chat {model}")
    span.set_attribute("gen_ai.operation.name", "chat")
    span.set_attribute("gen_ai.request.model", model)
    span.set_attribute("gen_ai.response.id", call)
    span.set_attribute("posttrain.dialect", dialect)
    span.set_attribute("posttrain.version", version)
    if trajectory is not None:
        span.set_attribute("posttrain.trajectory", trajectory)
    return span


def end_span(span: trace.Span, prompt_tokens: int | None, sampled_tokens: int | None, failure: str = "") -> None:
    span.set_attribute("gen_ai.usage.input_tokens", prompt_tokens or 0)
    span.set_attribute("gen_ai.usage.output_tokens", sampled_tokens or 0)
    if failure:
        span.set_status(trace.StatusCode.ERROR, failure)
    span.end()


def export_spans() -> None:
    """Send spans where OTEL_EXPORTER_OTLP_ENDPOINT says; without it nothing is made of them."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "posttrain-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def log_request(**fields: Any) -> None:
    """One JSON line."""
    log.info("%s", _encode({name: value for name, value in fields.items() if value is not None}).decode())


class Gathered(logging.Handler):
    """Lines from the event loop's thread, written together: to write each by itself costs a request more than its
    conversion. A warning, or a line from another thread, is written at once, after those before it. All streams get
    the lines in the form of the first."""

    def __init__(self, *to: logging.StreamHandler[Any]):
        super().__init__()
        self._to, self._lines = to, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self._to[0].format(record))
        if record.levelno >= logging.WARNING or (loop := _loop()) is None:
            self.flush()
        elif len(self._lines) == 1:
            loop.call_later(_TOGETHER, self.flush)

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            for each in self._to if lines else ():
                each.stream.write("".join(f"{line}\n" for line in lines))
                each.flush()
        finally:
            self.release()


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def gather_lines() -> None:
    """Write the program's log so, and ask for nothing that its lines do not say."""
    root = logging.getLogger()
    streams = [each for each in root.handlers if isinstance(each, logging.StreamHandler)]
    if streams:
        root.handlers = [Gathered(*streams), *(each for each in root.handlers if each not in streams)]
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
