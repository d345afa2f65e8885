"""The agent loops. Each is a coroutine over a talk: it ends when the policy has given its last answer.

`single`    one answer
`tools`     answers and tool calls over several turns, until an answer asks for no tool
`react`     code in the answer is run in a sandbox and its output shown, until an answer holds none
`research`  `tools`, told how much of its budget is left
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.rollout.agents.talk import Cut, Talk, calls_of, text_of
from posttrain.rollout.environments.base import Task, Tool

_BLOCK = re.compile(r"```(?:python|py)\s*\n(.*?)```", re.DOTALL)
Execute = Callable[[str], Awaitable[str]]  # code -> what it printed, in a sandbox


@dataclass(frozen=True)
class Means:
    """What an agent has besides the talk. `execute` is there where the run has sandboxes."""

    tools: Sequence[Tool] = ()
    max_turns: int = 8
    execute: Execute | None = None
    settings: Mapping[str, Any] | None = None


class Agent(Protocol):
    async def __call__(self, task: Task, talk: Talk, means: Means) -> None:
        """Until the last answer, which `talk.answer` holds. Raises Cut, Broken."""
        ...


async def single(task: Task, talk: Talk, means: Means) -> None:
    await talk.say(opening(task))


async def tools(task: Task, talk: Talk, means: Means) -> None:
    messages = opening(task)
    for _ in range(means.max_turns):
        said = await talk.say(messages, means.tools)
        asked = calls_of(said)
        if not asked:
            return
        results = await asyncio.gather(*(talk.act(means.tools, each) for each in asked))
        messages += [said, *(ir.Message(role="tool", parts=(result,)) for result in results)]
    raise Cut("turns")


async def react(task: Task, talk: Talk, means: Means) -> None:
    if means.execute is None:
        remedy = "give the run sandboxes, or choose another agent"
        raise UserError("runs code and there is no sandbox", field="agent.name", value="react", remedy=remedy)
    messages = opening(task)
    for _ in range(means.max_turns):
        said = await talk.say(messages)
        found = _BLOCK.findall(text_of(said))
        if not found or "<answer>" in text_of(said):
            return
        shown = await talk.run(lambda code=found[-1]: means.execute(code))  # type: ignore[misc]
        messages += [said, _user(f"The code printed:\n```\n{shown}\n```")]
    raise Cut("turns")


async def research(task: Task, talk: Talk, means: Means) -> None:
    messages = opening(task)
    for left in range(means.max_turns - 1, -1, -1):
        said = await talk.say(messages, means.tools if left else ())
        asked = calls_of(said)
        if not asked:
            return
        results = await asyncio.gather(*(talk.act(means.tools, each) for each in asked))
        messages += [said, *(ir.Message(role="tool", parts=(result,)) for result in results)]
        if left == 1:
            messages.append(_user("No tool call is left. Answer now with what you have found."))
    raise Cut("turns")


_OURS: dict[str, Agent] = {"single": single, "tools": tools, "react": react, "research": research}


def agent(name: str) -> Agent:
    """One of ours, or `module:function` of your own. Raises UserError."""
    if name in _OURS:
        return _OURS[name]
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        remedy = f"write one of {', '.join(_OURS)}, or module:function of a module on the path"
        raise UserError(f"cannot be loaded: {problem}", field="agent.name", value=name, remedy=remedy) from None


def opening(task: Task) -> list[ir.Message]:
    return [
        ir.Message(role=message["role"], parts=(ir.Text(text=message["content"]),))  # type: ignore[arg-type]
        for message in task.messages
    ]


def _user(text: str) -> ir.Message:
    return ir.Message(role="user", parts=(ir.Text(text=text),))
