from __future__ import annotations

import logging

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.contract.ref import Ref
from posttrain.llmm.gateway.app import build, serve
from posttrain.llmm.gateway.telemetry import export_spans
from posttrain.llmm.tokens.model import load_model
from posttrain.serving.server import check_port
from steps.gateway import Config, Inputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Nothing:
    """Serves until SIGTERM: answers under way may end, what ended is in the stream, the rest is closed at the next
    start."""
    settings = config.gateway
    directory = context.locate(inputs.model, field="gateway.model")
    model = load_model(
        directory, template=settings.template, format=settings.format, arguments=settings.template_arguments,
        name_media=settings.media == "name", field="gateway.model",
    )  # fmt: skip
    host = own_host(config.host)
    check_port(host, config.port)
    export_spans()
    stream, ledgers = (
        Ref.parse(uri, field=f"gateway.{name}").locate(context.workspace) if uri else ""
        for name, uri in (("stream", inputs.stream or settings.stream), ("ledgers", settings.ledgers))
    )
    app = build(settings, model, context.directory, stream=stream, ledgers=ledgers)
    log.info("listening on %s:%d; answers are read as %s", host, config.port, model.format.name)
    serve(app, host=host, port=config.port, drain_seconds=settings.timeouts.drain)
    return Nothing()
