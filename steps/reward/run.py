from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.reward.service import create_app
from posttrain.reward.settings import DATABASE_VARIABLE, RewardSettings
from posttrain.service import serve
from steps.reward import Config

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Nothing, config: Config) -> Nothing:
    """Serves until SIGTERM, then answers what is under way and appends what the stream still lacks."""
    settings = settled(config.service, context.workspace, os.environ.get(DATABASE_VARIABLE, ""))
    host = own_host(config.host)
    app = create_app(settings)
    log.info("verdicts at http://%s:%d", host, config.port)
    serve(app, host=host, port=config.port, on_stop=app.state.desk.begin_to_end, field="reward.port")
    return Nothing()


def settled(settings: RewardSettings, workspace: Path, database: str) -> RewardSettings:
    """`settings` with paths of this workspace; a database from the environment, which may hold a password."""
    return replace(
        settings,
        database=database or _within(workspace, settings.database),
        stream=_within(workspace, settings.stream),
        function_path=_within(workspace, settings.function_path),
        preference_models={name: _within(workspace, path) for name, path in settings.preference_models.items()},
    )


def _within(workspace: Path, path: str) -> str:
    return path if not path or "://" in path else str(workspace / path)
