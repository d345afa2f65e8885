"""One trajectory under way: what an agent says to the policy and does with tools, kept as ids, with its times.

Invariants: the ids of a trajectory are the engine's (`llmm.tokens.history`); nothing is sampled beyond the
trajectory's tokens or its time; each second is the policy's or the environment's, and is told apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from posttrain.llmm import ir
from posttrain.llmm.gateway.assemble import Assembler
from posttrain.llmm.gateway.experience import trajectory_of
from posttrain.llmm.gateway.journal import Closed, Entry, Opened, TurnTaken
from posttrain.llmm.gateway.sampling import sampling_parameters
from posttrain.llmm.ir.agentic import Status
from posttrain.llmm.tokens.history import History
from posttrain.llmm.tokens.messages import template_messages
from posttrain.rollout.agents.policy import Policy
from posttrain.rollout.environments.base import Tool, ToolError, call

T = TypeVar("T")


class Cut(Exception):
    """A rule ended the trajectory: `overlong`, `looping`, `turns` or `timed_out`. It is judged as it stands."""

    def __init__(self, rule: str):
        super().__init__(rule)
        self.rule = rule


class Broken(Exception):
    """Something that is not the policy's failed: the trajectory is tried again, and never becomes a reward."""


@dataclass
class Times:
    """Seconds that a trajectory has spent."""

    policy: float = 0.0
    environment: float = 0.0


@dataclass
class Talk:
    """`seconds` is the time of the whole trajectory."""

    policy: Policy
    id: str
    task: str
    group: str
    seconds: float = 600.0
    tool_seconds: float = 30.0
    seed: int | None = None
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        self._started, self._begun = time.time(), time.monotonic()
        self._history = History(self.policy.model.codec)
        self._said: list[tuple[ir.Message, ...]] = []
        opened = Opened(id=self.id, task=self.task, group=self.group, key="", started=self._started)
        self._entries: list[Entry] = [opened]
        self.answer = ""  # the text of the last answer
        self.sampled = 0  # tokens

    async def say(self, messages: Sequence[ir.Message], tools: Sequence[Tool] = ()) -> ir.Message:
        """The policy's answer to `messages`, all of the conversation so far. Raises Cut, Broken."""
        request = self._request(messages, tools)
        prompt = self.policy.model.prompt(
            request, now=datetime.fromtimestamp(self._started), restore=self._history.restore
        )
        plan = self._history.plan(prompt)
        room = self.policy.trajectory_tokens - len(plan.ids)
        if room < 1:
            raise Cut("overlong")
        parameters = sampling_parameters(request, self.policy.model, len(plan.ids), thinking=prompt.thinking)
        parameters["max_tokens"] = min(parameters["max_tokens"], room)
        turn = len(self._said)
        if self.seed is not None:
            parameters["seed"] = (self.seed + turn) % 2**31
        asked = time.time()
        sampled, last = await self._within(
            self.policy.sample(plan.ids, parameters, request=f"{self.id}-{turn}", affinity=self.id), self._left(),
            "policy",
        )  # fmt: skip
        assembler = Assembler(
            self.policy.model, request, response=f"{self.id}-{turn}", name="policy", created=asked,
            thinking=prompt.thinking, prompt_tokens=len(plan.ids),
        )  # fmt: skip
        assembler.take([msgspec.structs.replace(last, token_ids=list(sampled.ids), logprobs=None)])
        assembler.finish()
        choice = assembler.response().choices[0]
        said = template_messages(ir.ChatRequest(messages=(choice.message,))).messages[0]
        index = self._history.add(plan, sampled, said)
        before = self._said[plan.parent] if plan.parent is not None else ()
        call_made = ir.Call(
            id=f"{self.id}-{turn}", started=asked, seconds=time.time() - asked,
            policy=sampled.policy[-1][0] if sampled.policy else None,
        )  # fmt: skip
        taken = ir.Turn(
            index=index, call=call_made, said=choice, parent=plan.parent, fork=plan.fork,
            seen=request.messages[len(before) :],
        )  # fmt: skip
        self._said.append((*request.messages, choice.message))
        self._entries.append(TurnTaken(
            turn=taken, new=plan.new, ids=sampled.ids, logprobs=sampled.logprobs, policy=sampled.policy,
        ))  # fmt: skip
        self.answer = text_of(choice.message)
        self.sampled += len(sampled.ids)
        if last.finish_reason == "repetition":
            raise Cut("looping")
        if last.finish_reason == "length":
            raise Cut("overlong")
        return choice.message

    async def act(self, tools: Sequence[Tool], asked: ir.ToolCall) -> ir.ToolResult:
        """What the tool that was asked for gives. A call that cannot be, or takes too long, is told to the policy.
        Raises Cut at the trajectory's end, Broken where the tool itself fails."""
        seconds = min(self.tool_seconds, self._left())
        try:
            found = await self._within(asyncio.to_thread(_call, tools, asked), seconds, "environment")
            return ir.ToolResult(call=asked.id, name=asked.name, content=(ir.Text(text=found),))
        except ToolError as problem:
            told = str(problem)
        except Cut:
            if seconds < self.tool_seconds:
                raise
            told = f"{asked.name}: took longer than {self.tool_seconds:g} s"
        return ir.ToolResult(call=asked.id, name=asked.name, content=(ir.Text(text=told),), error=True)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Something of the environment's, timed as such. Raises Cut at the trajectory's end."""
        return await self._within(work(), self._left(), "environment")

    def end(self, status: Status, reward: float | None, details: Mapping[str, Any]) -> ir.Trajectory:
        closed = Closed(status=status, at=time.time(), reward=reward, details=dict(details))
        return trajectory_of([*self._entries, closed])

    def _request(self, messages: Sequence[ir.Message], tools: Sequence[Tool]) -> ir.ChatRequest:
        offered = tuple(ir.Tool(name=t.name, description=t.description, parameters=t.parameters) for t in tools)
        policy = self.policy
        sampling = ir.Sampling(max_tokens=policy.max_tokens, temperature=policy.temperature, top_p=policy.top_p)
        return ir.ChatRequest(messages=tuple(messages), tools=offered or None, sampling=sampling)

    def _left(self) -> float:
        left = self.seconds - (time.monotonic() - self._begun)
        if left <= 0:
            raise Cut("timed_out")
        return left

    async def _within(self, work: Awaitable[T], seconds: float, whose: str) -> T:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise Cut("timed_out") from None
        finally:
            setattr(self.times, whose, getattr(self.times, whose) + time.monotonic() - begun)


def _call(tools: Sequence[Tool], asked: ir.ToolCall) -> str:
    tool = next((each for each in tools if each.name == asked.name), None)
    if tool is None:
        raise ToolError(f"there is no tool {asked.name!r}; there are {', '.join(t.name for t in tools)}")
    try:
        arguments = ir.arguments_object(asked)
    except ValueError as problem:
        raise ToolError(str(problem)) from None
    return call(tool, arguments)


def text_of(message: ir.Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, ir.Text))


def calls_of(message: ir.Message) -> list[ir.ToolCall]:
    return [part for part in message.parts if isinstance(part, ir.ToolCall)]
