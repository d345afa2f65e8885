"""`posttrain env …`: environments to look at and to try, without a model and without a service."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import textwrap
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.cli.options import group
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.reward.model import Finding
    from posttrain.rollout.environments.base import Environment, Task, Tool

app = group("Environments: tasks with tools and a verifier.")


Name = Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="math, code or research.")]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its settings, as in seed=3 or source=humaneval.")
]
TaskName = Annotated[str, typer.Option("--task", metavar="TASK", help="A task's id, or its place from 0.")]


@app.command("list")
def list_() -> None:
    """List the environments."""
    from posttrain.rollout.environments import catalogue

    grid = Table.grid(padding=(0, 2))
    for name in catalogue.NAMES:
        grid.add_row(name, catalogue.summary(name))
    Console(highlight=False).print(grid)


@app.command()
def show(
    name: Name,
    settings: Settings = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Show this task in full.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many tasks to list.", min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Show an environment's tools and tasks."""
    from posttrain.rollout.environments import catalogue
    from posttrain.rollout.environments.base import described

    environment = catalogue.make(name, settings or ())
    tasks = [catalogue.pick(environment, task)] if task else list(islice(environment.tasks(), count))
    if as_json:
        for each in tasks:
            typer.echo(json.dumps(asdict(each), ensure_ascii=False))
        return
    console = Console(highlight=False)
    for tool in environment.tools:
        console.print(Text.assemble((f"tool {tool.name}", "bold"), f": {tool.description}"))
        console.print(f"  {json.dumps(described(tool)['function']['parameters'])}", markup=False)
    if task:
        _print_task(console, tasks[0])
        console.print(f"\nverifier: {tasks[0].verifier}\nanswer: {tasks[0].answer or '–'}", markup=False)
        console.print(f"metadata: {json.dumps(dict(tasks[0].metadata), ensure_ascii=False)}", markup=False)
        return
    grid = Table(box=None, header_style="bold")
    for column in ("task", "verifier", "asks"):
        grid.add_column(column, no_wrap=column != "asks")
    for each in tasks:
        first = each.messages[-1]["content"].strip().partition("\n\n")[0]  # what follows is the answer's form
        asks = " ".join(first.split())
        grid.add_row(each.id, each.verifier, Text(asks if len(asks) <= 200 else asks[:199] + "…"))
    console.print(grid)


@app.command("try")
def try_(
    name: Name,
    settings: Settings = None,
    task: TaskName = "0",
    answer: Annotated[str | None, typer.Option(help="The answer, instead of from the terminal.")] = None,
) -> None:
    """Take the policy's part in one task: read it, use its tools, answer, and see the verdict with its evidence."""
    from posttrain.rollout.environments import catalogue

    environment = catalogue.make(name, settings or ())
    picked = catalogue.pick(environment, task)
    console = Console(highlight=False)
    _print_task(console, picked)
    completion = answer if answer is not None else _converse(console, environment)
    finding = asyncio.run(_judge(picked, completion))
    _print_finding(console, picked, finding)


def _print_task(console: Console, task: Task) -> None:
    console.print(Text(f"task {task.id}", "bold"))
    for message in task.messages:
        console.print(Text(f"\n{message['role']}:", "bold"))
        console.print(message["content"], markup=False)


def _converse(console: Console, environment: Environment) -> str:
    """What is typed, up to the end of input or a line with a single dot; `/tool {…}` calls a tool on the way."""
    tools = {tool.name: tool for tool in environment.tools}
    if sys.stdin.isatty():
        console.print(Text("\nYour answer; end it with a line that holds a single dot, or with Ctrl-D.", "dim"))
        for tool in tools.values():
            required = {name: "…" for name in tool.parameters.get("required", [])}
            console.print(Text(f"Call a tool: /{tool.name} {json.dumps(required, ensure_ascii=False)}", "dim"))
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip() == ".":
            break
        asked = re.fullmatch(r"/(\w+)\s*(\{.*)?", line.strip()) if tools else None
        if asked:
            console.print(_observation(tools, asked[1], asked[2]), markup=False)
        else:
            lines.append(line)
    return "".join(lines)


def _observation(tools: dict[str, Tool], name: str, text: str | None) -> str:
    from posttrain.rollout.environments.base import ToolError, call

    if (tool := tools.get(name)) is None:
        return f"error: there is no tool {name!r}; there are {', '.join(tools)}"
    try:
        return call(tool, json.loads(text or "{}"))
    except json.JSONDecodeError as problem:
        return f"error: the arguments are no JSON: {problem}"
    except ToolError as problem:
        return f"error: {problem}"


async def _judge(task: Task, completion: str) -> Finding:
    from posttrain.reward.engine import Engine
    from posttrain.reward.settings import RewardSettings

    engine = Engine(RewardSettings())
    try:
        return await engine.find(task.question(completion))
    finally:
        await engine.close()


def _print_finding(console: Console, task: Task, finding: Finding) -> None:
    console.print(Text(f"\nverdict by {task.verifier}: {finding.status}", "bold"))
    if finding.reward is not None:
        console.print(f"reward {finding.reward:g}, correct: {finding.correct}, well formed: {finding.well_formed}")
    for key, value in finding.evidence.items():
        console.print(_told(f"{key}:", value), markup=False)
    if finding.reward is None:
        raise UserError("there is no verdict", field=task.verifier, value=finding.status.value)


def _told(name: str, value: Any) -> str:
    """A piece of evidence behind its name: on the same line, or where it has several lines or parts, below it."""
    below: list[str] = []
    if isinstance(value, list):
        below = [_told("-", each) for each in value]
    elif isinstance(value, dict) and any(isinstance(each, str) and "\n" in each for each in value.values()):
        below = [_told(f"{key}:", each) for key, each in value.items()]
    elif isinstance(value, str) and "\n" in value.strip():
        below = [value.strip("\n")]
    if below:
        return textwrap.indent("\n".join([name, *below]), "  ").strip()
    return f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
