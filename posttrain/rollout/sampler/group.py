"""One group: the trajectories of one task that are compared with each other, made, judged and put into rows.

Invariants: each trajectory of a group ends in exactly one way and makes its rows once, whatever fails; only what was
scored has a reward; what failed by no fault of the policy is made anew a few times and then says so in its row.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UserError
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.ir import arrow
from posttrain.llmm.ir.agentic import Status
from posttrain.reward.api import Ask, Verdict
from posttrain.reward.model import FINAL
from posttrain.reward.model import Status as Scored
from posttrain.rollout.agents.loops import Agent, Means
from posttrain.rollout.agents.policy import Policy
from posttrain.rollout.agents.talk import Broken, Cut, Talk, Times
from posttrain.rollout.environments.base import Task
from posttrain.rollout.sampler.settings import AdmissionSettings, AgentSettings

log = logging.getLogger(__name__)
Row = dict[str, Any]
Judge = Callable[[Ask], Awaitable[Verdict]]


@dataclass(frozen=True)
class Made:
    """What left of a group: its rows, and what its trajectories spent, in seconds."""

    number: int
    task: str
    rows: list[Row]
    sampled: list[int]  # tokens of each trajectory
    times: list[Times]
    judged: list[float]  # seconds of each verdict


@dataclass
class Slots:
    """Places for trajectories at once; the number may change while they are taken."""

    cap: int
    taken: int = 0
    _freed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> None:
        async with self._freed:
            await self._freed.wait_for(lambda: self.taken < self.cap)
            self.taken += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._freed:
            self.taken -= 1
            self._freed.notify_all()

    async def resize(self, cap: int) -> None:
        async with self._freed:
            self.cap = cap
            self._freed.notify_all()


@dataclass(frozen=True)
class Maker:
    """Makes groups. `name` goes before their numbers in the ids."""

    name: str
    policy: Policy
    agent: Agent
    means: Means
    judge: Judge
    slots: Slots
    how: AgentSettings
    admission: AdmissionSettings
    seed: int

    async def group(self, number: int, task: Task) -> Made:
        group = f"{self.name}-{number:06d}"
        size = self.admission.group_size
        made = await asyncio.gather(*(self._trajectory(number, task, group, k) for k in range(size)))
        rows = [row for one in made for row in one[0]]
        for row in rows:
            row["group_rows"] = len(rows)
        return Made(number, task.id, rows, *(list(column) for column in list(zip(*made, strict=True))[1:]))

    async def _trajectory(self, number: int, task: Task, group: str, k: int) -> tuple[list[Row], int, Times, float]:
        """Its rows, its sampled tokens, what it spent, what its verdict took."""
        seed = (self.seed * 1_000_003 + number * self.admission.group_size + k) * 64
        for attempt in range(self.admission.retries + 1):
            async with self.slots:
                talk = Talk(
                    self.policy, f"{group}-{k}", task.id, group, seed=seed + attempt * 2**20,
                    seconds=self.how.trajectory_seconds, tool_seconds=self.how.tool_seconds,
                )  # fmt: skip
                ended = await self._made(task, talk)
            if ended != "infrastructure_error":
                break
        if ended == "infrastructure_error":
            return _rows(talk, "failed", None, ended, {}), talk.sampled, talk.times, 0.0
        begun = time.monotonic()
        status, reward, failure, details = await self._judged(task, talk, ended)
        seconds = time.monotonic() - begun
        return _rows(talk, status, reward, failure or ended, details), talk.sampled, talk.times, seconds

    async def _made(self, task: Task, talk: Talk) -> str:
        """How the trajectory ended: "" by itself, a rule's name, or infrastructure_error."""
        try:
            await self.agent(task, talk, self.means)
            return ""
        except Cut as cut:
            return cut.rule
        except (Broken, GatewayError, ConnectionError) as problem:
            log.warning("trajectory %s: %s", talk.id, problem)
            return "infrastructure_error"

    async def _judged(self, task: Task, talk: Talk, ended: str) -> tuple[Status, float | None, str, Mapping[str, Any]]:
        question = task.question(talk.answer)
        ask = Ask(
            task=task.id, trajectory=talk.id, verifier=question.verifier, completion=question.completion,
            answer=question.answer, metadata=dict(question.metadata),
        )  # fmt: skip
        for _ in range(self.admission.retries + 1):
            verdict = await self.judge(ask)
            if verdict.status in FINAL:
                break
        details = {"verdict": verdict.key, "correct": verdict.correct, "well_formed": verdict.well_formed}
        if verdict.status is not Scored.scored:
            if verdict.status is Scored.invalid_answer:
                log.warning("task %s has an answer that %s cannot use", task.id, question.verifier)
            return "failed", None, verdict.status.value, details
        return ("truncated" if ended else "finished"), verdict.reward, "", details


def _rows(talk: Talk, status: Status, reward: float | None, ended: str, details: Mapping[str, Any]) -> list[Row]:
    trajectory = talk.end(status, reward, details)
    rows = arrow.rows(trajectory)
    if not rows:  # it ended before a token was sampled; it leaves all the same
        rows = [{
            "trajectory": talk.id, "task": talk.task, "group": talk.group, "tokens": [], "loss_mask": [],
            "reward": reward, "status": status,
        }]  # fmt: skip
    return [row | {"ended": ended or None} for row in rows]


def checked_tasks(tasks: Sequence[Task], *, field: str) -> list[Task]:
    """Tasks with ids of their own. Raises UserError."""
    if not tasks:
        raise UserError("gives no task", field=field, remedy="look at it with `posttrain env show`")
    if len({task.id for task in tasks}) != len(tasks):
        raise UserError("gives two tasks of one id", field=field)
    return list(tasks)
