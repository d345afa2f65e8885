"""What an environment is: a source of tasks, tools with JSON schemas, and for each task the question that judges it.

Invariants: the same settings and seed give the same tasks in the same order; what a task shows (`messages`) holds
nothing of what judges it (`answer`, `metadata`); tools may be called from many conversations at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jsonschema

from posttrain.reward.model import Question

Message = dict[str, str]


@dataclass(frozen=True)
class Task:
    """`messages` are what the policy sees; `answer` and `metadata` are the verifier's alone."""

    id: str
    messages: tuple[Message, ...]
    verifier: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tier: str = ""

    def question(self, completion: str) -> Question:
        """What to ask the reward service about `completion`, the policy's last message."""
        return Question(self.verifier, completion, self.answer, self.metadata)


class ToolError(Exception):
    """What a policy is told of a call that cannot be: its own mistake, to be read and done better."""


class Tool(Protocol):
    """`parameters` is a JSON schema of an object, as the function tools of the OpenAI interface have it."""

    name: str
    description: str
    parameters: dict[str, Any]

    def call(self, arguments: Mapping[str, Any]) -> str:
        """The observation. Raises ToolError for what the policy can mend."""
        ...


class Environment(Protocol):
    name: str
    summary: str
    tools: tuple[Tool, ...]

    def tasks(self) -> Iterator[Task]:
        """All of them, in order."""
        ...


def call(tool: Tool, arguments: Any) -> str:
    """Call `tool` once its arguments fit its schema. Raises ToolError that says what does not."""
    problem = next(jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments), None)
    if problem is not None:
        raise ToolError(f"{tool.name}: {problem.json_path}: {problem.message}")
    return tool.call(arguments)


def described(tool: Tool) -> dict[str, Any]:
    """The tool as a function of an OpenAI-compatible request."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def asking(text: str, system: str = "") -> tuple[Message, ...]:
    head: tuple[Message, ...] = ({"role": "system", "content": system},) if system else ()
    return (*head, {"role": "user", "content": text})
