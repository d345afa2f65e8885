"""The sampler as a service: its loop, with probes and the addresses of its engines beside it.

GET /engines    where the engines are, for who brings new weights to them
GET /state      groups begun, left and under way
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from posttrain.lakestream import EXPERIENCE, PROGRESS, Stream
from posttrain.lakestream.upkeep import Policy as Upkeep
from posttrain.llmm.gateway.engine import Engines
from posttrain.llmm.gateway.settings import GatewaySettings, TimeoutSettings, VersionSettings
from posttrain.llmm.gateway.telemetry import Metrics
from posttrain.llmm.gateway.versions import Versions
from posttrain.llmm.tokens.model import ChatModel
from posttrain.reward.api import Ask, Verdict
from posttrain.reward.client import RewardClient
from posttrain.rollout.agents.loops import Agent, Execute, Means
from posttrain.rollout.agents.policy import Policy
from posttrain.rollout.environments.base import Task, Tool
from posttrain.rollout.sampler.engines import EngineLook, check_room
from posttrain.rollout.sampler.group import Maker, Slots
from posttrain.rollout.sampler.loop import Sampler
from posttrain.rollout.sampler.settings import AdmissionSettings, AgentSettings, RepetitionSettings, SamplingSettings
from posttrain.service import add_probes
from posttrain.timings import Timings

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Streams:
    """Where they are."""

    experience: str
    progress: str
    timings: str = ""


@dataclass(frozen=True)
class Plan:
    """What is sampled and how. `name` is the producer's: another sampler of the run has another one."""

    name: str
    model: ChatModel
    tasks: Sequence[Task]
    tools: Sequence[Tool]
    agent: Agent
    sampling: SamplingSettings
    repetition: RepetitionSettings
    how: AgentSettings
    admission: AdmissionSettings
    seed: int
    execute: Execute | None = None
    most_groups: int = 0


async def check_engines(engines: Sequence[str], sampling: SamplingSettings) -> None:
    """Raises UserError where the longest trajectory has no room in a cache."""
    async with EngineLook(engines) as look:
        check_room(sampling.trajectory_tokens, await look.cache_tokens())


@asynccontextmanager
async def opened(plan: Plan, engines: Sequence[str], rewards: RewardClient, streams: Streams) -> AsyncIterator[Sampler]:
    """The sampler with all that it needs."""
    async with AsyncExitStack() as stack:
        named = VersionSettings(name="policy", replicas=list(engines))
        version = Versions(GatewaySettings(versions=[named])).by_name["policy"]
        timeouts = TimeoutSettings(request=plan.how.trajectory_seconds, connect=_CONNECT_SECONDS)
        asked = Engines(version.replicas, timeouts, Metrics(), retries=len(engines), health_seconds=1.0)
        await stack.enter_async_context(asked)
        look = await stack.enter_async_context(EngineLook(engines))
        policy = Policy(
            plan.model, asked, version, plan.sampling.temperature, plan.sampling.top_p, plan.sampling.max_tokens,
            plan.sampling.trajectory_tokens, _repetition(plan.repetition),
        )  # fmt: skip

        async def judge(ask: Ask) -> Verdict:
            return await asyncio.to_thread(rewards.verdict, ask)

        maker = Maker(
            plan.name, policy, plan.agent,
            Means(plan.tools, plan.how.max_turns, plan.execute, plan.how.settings), judge,
            Slots(plan.admission.concurrency), plan.how, plan.admission, plan.seed,
        )  # fmt: skip
        timings = stack.enter_context(Timings(streams.timings, "sampler", name=plan.name)) if streams.timings else None
        experience = await asyncio.to_thread(
            lambda: Stream.create(streams.experience, EXPERIENCE).producer(plan.name, upkeep=Upkeep())
        )
        progress = await asyncio.to_thread(
            lambda: Stream.create(streams.progress, PROGRESS).consumer(group=None, max_latency=0.1)
        )
        yield Sampler(maker, plan.tasks, experience, progress, look, timings, plan.most_groups)


def application(plan: Plan, engines: Sequence[str], rewards: RewardClient, streams: Streams) -> FastAPI:
    """Samples while it serves. It ends the process when the loop fails: a service that no longer samples must be
    started again."""
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"posttrain_sampler_{name}", text, registry=registry)
        for name, text in (
            ("groups_left", "Groups that are in the stream"), ("groups_begun", "Groups begun"),
            ("running", "Trajectories under way"), ("slots", "Trajectories that may be under way"),
        )
    }  # fmt: skip
    stop, holder = asyncio.Event(), dict[str, Any]()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with opened(plan, engines, rewards, streams) as sampler:
            holder["sampler"] = sampler
            running = asyncio.create_task(sampler.run(stop))
            running.add_done_callback(_end_with)
            yield
            stop.set()
            await asyncio.gather(running, return_exceptions=True)

    app = FastAPI(title="posttrain sampler", lifespan=lifespan)

    def state() -> dict[str, int]:
        sampler: Sampler = holder["sampler"]
        slots = sampler.maker.slots
        return {
            "groups_left": sampler.left.count, "groups_begun": sampler.begun, "running": slots.taken,
            "slots": slots.cap,
        }  # fmt: skip

    @app.get("/engines")
    async def show_engines() -> list[str]:
        return list(engines)

    @app.get("/state")
    async def show_state() -> dict[str, int]:
        return state()

    async def serves() -> bool:
        for name, value in state().items():
            gauges[name].set(value)
        return not stop.is_set()

    add_probes(app, serves=serves, registry=registry)
    app.state.stop = stop.set
    return app


def _end_with(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        os._exit(1)


def _repetition(settings: RepetitionSettings) -> dict[str, int]:
    if not settings.pattern_tokens:
        return {}
    return {"max_pattern_size": settings.pattern_tokens, "min_pattern_size": 1, "min_count": settings.times}
