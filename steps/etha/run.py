from __future__ import annotations

import logging
from dataclasses import replace

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.etha.coordinator.service import create_app
from posttrain.service import serve
from steps.etha import Config

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Nothing, config: Config) -> Nothing:
    """Serves until SIGTERM. Started again in the same directory it goes on where it was."""
    settings = replace(config.etha, database=str(context.directory / config.etha.database))
    app = create_app(settings)
    host = own_host(config.host)
    log.info("listening on %s:%d", host, config.port)
    serve(app, host=host, port=config.port, on_stop=app.state.server.close_waits, field="etha.port")
    return Nothing()
