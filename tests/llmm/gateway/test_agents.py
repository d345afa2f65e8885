"""Codex and Claude Code, as their npm packages install them, do a task headless through the gateway.

    npm install @openai/codex @anthropic-ai/claude-code && PATH=$PWD/node_modules/.bin:$PATH pytest …

Where they are not installed their recorded requests stand in for them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from posttrain.llmm import trace
from posttrain.llmm.replay import replay
from tests.llmm.dialects.test_sessions import recorded
from tests.llmm.gateway.conftest import Gateway, gateway
from tests.llmm.gateway.test_clients import script

pytestmark = pytest.mark.xdist_group("gateway")

CODEX = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
SCRIPT = 'const r = await tools.exec_command({cmd: "echo 42 > answer.txt"}); text(r.output)'
CLAUDE = ["--allowedTools=Bash,Agent", "-p"]


def needs(program: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"{program} is not installed: npm install {package}"
    )


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """These agents' own instructions have more tokens than the tests' model has room for."""
    with gateway(tmp_path_factory.mktemp("agents"), context=1_000_000) as served:
        yield served


def run(home: Path, key: str, url: str, *command: str) -> Path:
    """Its working directory, once the agent has done what it was told."""
    work = home / "work"
    work.mkdir()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "OPENAI_API_KEY": key, "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("all done"), done.stdout
    return work


def ended(served: Gateway, name: str) -> tuple[Any, list[trace.Event]]:
    told = served.finish(name, reward=1.0)
    ledger = served.ledger(name)
    assert replay(ledger) is None
    return told, ledger


@pytest.mark.parametrize("agent", ["codex", "claude_code"])
def test_what_an_agent_once_sent_is_answered(roomy: Gateway, agent: str) -> None:
    """The first request of each, run headless; long texts are cut."""
    asked = recorded(agent)
    name, key = roomy.trajectory(agent)
    headers = {k: v for k, v in asked["headers"].items() if k.lower() != "accept-encoding"}
    with httpx.stream(
        "POST", roomy.url + asked["path"], json=asked["body"], headers=headers | {"authorization": f"Bearer {key}"}
    ) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    assert answer.status_code == 200
    assert events[-1]["type"] in ("response.completed", "message_stop")
    _, ledger = ended(roomy, name)
    [call] = [event for event in ledger if isinstance(event, trace.Asked)]
    assert call.request == asked["body"]


@needs("codex", "@openai/codex")
@pytest.mark.parametrize(
    ("model", "tool", "arguments"),
    [(["-m", "policy"], "exec_command", {"cmd": "echo 42 > answer.txt"}), ([], "exec", {"input": SCRIPT})],
)
def test_codex_does_a_task(
    roomy: Gateway, tmp_path: Path, model: list[str], tool: str, arguments: dict[str, str]
) -> None:
    """A model that it does not know gets tools with schemas; its own one a tool that takes a program as free text."""
    name, key = roomy.trajectory("codex")
    answers = script("I write it.\n" + call(tool, **arguments), "all done")
    provider = (
        f'{{name = "posttrain", base_url = "{roomy.url}/v1", env_key = "OPENAI_API_KEY", wire_api = "responses"}}'
    )
    settings = ("-c", 'model_provider="posttrain"', "-c", f"model_providers.posttrain={provider}")
    work = run(tmp_path, key, roomy.url, "codex", *CODEX, *model, *settings, f"Write 42 into answer.txt. {answers}")
    assert (work / "answer.txt").read_text() == "42\n"
    told, ledger = ended(roomy, name)
    assert (told["turns"], told["rows"], told["forks"]) == (2, 1, {})
    [used] = [event for event in ledger if isinstance(event, trace.Used)]
    assert used.name == tool and used.arguments in (arguments.get("input"), json.dumps(arguments))


@needs("claude", "@anthropic-ai/claude-code")
def test_claude_code_does_a_task_with_a_sub_agent(roomy: Gateway, tmp_path: Path) -> None:
    """The sub-agent's prompt holds no script, so that it is answered with a word."""
    name, key = roomy.trajectory("claude")
    answers = script(
        "I write it.\n" + call("Bash", command="echo 42 > answer.txt", description="write"),
        call("Agent", description="check", prompt="Is it right?", subagent_type="general-purpose"),
        "all done",
    )
    work = run(tmp_path, key, roomy.url, "claude", *CLAUDE, f"Write 42 into answer.txt. {answers}")
    assert (work / "answer.txt").read_text() == "42\n"
    told, ledger = ended(roomy, name)
    assert told["forks"] == {}
    lived = trace.rebuild(ledger)
    [child] = lived.children
    tools = {event.id: event for event in ledger if isinstance(event, trace.Used)}
    assert [tool.name for tool in tools.values()] == ["Bash", "Agent"]
    assert child.spawned == next(tool.call for tool in tools.values() if tool.name == "Agent")
    assert (len(lived.turns), told["rows"]) == (3, 2)
