from __future__ import annotations

import logging
import os
from dataclasses import replace

from posttrain.contract import Nothing, StepContext
from posttrain.etha.coordinator.service import create_app
from posttrain.service import serve
from steps.etha import Config

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Nothing, config: Config) -> Nothing:
    """Serves until SIGTERM. Started again in the same directory it goes on where it was."""
    settings = replace(config.etha, database=str(context.directory / config.etha.database))
    app = create_app(settings)
    host = config.host or os.environ.get("POD_IP") or "0.0.0.0"
    log.info("listening on %s:%d", host, config.port)
    serve(app, host=host, port=config.port, on_stop=app.state.server.close_waits, field="etha.port")
    return Nothing()
