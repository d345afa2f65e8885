from __future__ import annotations

import logging

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.contract.ref import Ref
from posttrain.serving.client import ServerFailed
from posttrain.serving.release import check_digest
from posttrain.serving.server import ModelServer
from steps.serve import Config, Inputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Nothing:
    """Serves until SIGTERM, which the runner turns into SystemExit, or until the server ends by itself."""
    release = context.locate(inputs.release, field="serve.release")
    check_digest(release, inputs.release, field="serve.release")
    name = config.model_name or Ref.parse(inputs.release).uri.removeprefix("releases/")
    host = own_host(config.host)
    server = ModelServer(
        release, config.engine, host=host, port=config.port, name=name, log_file=context.directory / "server.log"
    )
    with server:
        with context.progress.task("start server", None, "s") as task:
            server.wait_healthy(config.start_seconds, lambda waited: task.advance(int(waited) - task.done))
        log.info("serving %s at %s", name, server.url)
        code = server.wait()
    raise ServerFailed(f"the server ended by itself with code {code}; see server.log of this step in the workspace")
