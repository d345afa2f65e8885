from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.etha import plugin
from posttrain.lake import open_table
from posttrain.llmm.tokens.model import load_model
from posttrain.reward.client import RewardClient
from posttrain.rollout.agents.loops import agent
from posttrain.rollout.environments import catalogue
from posttrain.rollout.environments.base import Environment, Task
from posttrain.rollout.environments.prepared import tasks_of
from posttrain.rollout.sampler.group import checked_tasks
from posttrain.rollout.sampler.service import Plan, Streams, application, check_engines
from posttrain.service import serve
from posttrain.serving.server import ModelServer
from steps.rollout import Config, Inputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Nothing:
    """Samples until SIGTERM. What was under way then begins anew when it is started again."""
    directory = context.locate(inputs.model, field="rollout.model")
    environment = catalogue.make(config.environment.name, **config.environment.settings)
    plan = Plan(
        name="sampler",
        model=load_model(
            directory, template=config.template, arguments=config.template_arguments, field="rollout.model"
        ),
        tasks=_tasks(context, inputs, environment),
        tools=environment.tools,
        agent=agent(config.agent.name),
        sampling=config.sampling,
        repetition=config.repetition,
        how=config.agent,
        admission=config.admission,
        seed=context.seed,
    )
    host = own_host(config.host)
    lake = context.workspace / "lake" / context.run
    streams = Streams(*(str(lake / f"{name}.lance") for name in ("experience", "progress", "timings")))
    with ExitStack() as stack:
        rewards = stack.enter_context(RewardClient(inputs.reward, field="rollout.reward"))
        servers = [
            stack.enter_context(ModelServer(
                directory, config.engine, host=host, port=config.port + 1 + number, name="policy",
                log_file=context.directory / f"engine-{number}.log", field="rollout.model",
                options=plugin.OPTIONS, variables=plugin.variables(),
            ))
            for number in range(0 if config.engines else config.replicas)
        ]  # fmt: skip
        with context.progress.task("start engines", None, "s") as task:
            for server in servers:
                server.wait_healthy(config.start_seconds, lambda waited: task.advance(int(waited) - task.done))
        urls = config.engines or [server.url for server in servers]
        asyncio.run(check_engines(urls, config.sampling))
        app = application(plan, urls, rewards, streams)
        log.info("sampling %s from %s", config.environment.name, ", ".join(urls))
        serve(app, host=host, port=config.port, on_stop=app.state.stop, field="rollout.port")
    return Nothing()


def _tasks(context: StepContext, inputs: Inputs, environment: Environment) -> list[Task]:
    if not inputs.tasks:
        return checked_tasks(list(environment.tasks()), field="environment")
    field = "rollout.tasks"
    return checked_tasks(
        tasks_of(open_table(context.workspace, inputs.tasks, field=field).to_table().to_pylist()), field=field
    )
