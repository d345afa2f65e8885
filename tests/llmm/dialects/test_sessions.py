"""Whose call it is: sessions and sub-agents of Codex and Claude Code, as their clients send them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.crossing import convert
from posttrain.llmm.dialects.session import Session, session

CODEX = {
    "originator": "codex_exec",
    "user-agent": "codex_exec/0.171.0 (Debian 12; x86_64)",
    "session-id": "s1",
    "thread-id": "s1",
}
CLAUDE = {"user-agent": "claude-cli/2.1.332 (external, cli)", "x-app": "cli"}


def user_id(text: str) -> dict[str, Any]:
    return {"metadata": {"user_id": text}}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (CODEX, {}, Session("codex", "s1", version="0.171.0")),
        ({"originator": "codex_cli", "version": "1"}, {"prompt_cache_key": "k"}, Session("codex", "k", version="1")),
        (
            CODEX | {"thread-id": "s2", "X-Codex-Parent-Thread-Id": "s1", "X-OpenAI-Subagent": "collab_spawn"},
            {},
            Session("codex", "s1", "s2", "s1", "collab_spawn", "0.171.0"),
        ),
        (
            {"originator": "codex_cli_rs"},
            {"client_metadata": {"session_id": "s", "thread_id": "t", "x-openai-subagent": "review"}},
            Session("codex", "s", "t", None, "review"),
        ),
        (
            {"x-codex-turn-metadata": json.dumps({"session_id": "s", "thread_id": "t", "parent_thread_id": "p"})},
            {},
            Session("codex", "s", "t", "p"),
        ),
        (CLAUDE | {"X-Claude-Code-Session-Id": "s1"}, {}, Session("claude_code", "s1", version="2.1.332")),
        (CLAUDE, user_id("user_ab_account__session_7d0e-2f"), Session("claude_code", "7d0e-2f", version="2.1.332")),
        (
            CLAUDE,
            user_id(json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s2"})),
            Session("claude_code", "s2", version="2.1.332"),
        ),
        (
            CLAUDE | {"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "a1"},
            {},
            Session("claude_code", "s1", "a1", "s1", "subagent", "2.1.332"),
        ),
        (CLAUDE, user_id("no session here"), Session("claude_code", None, version="2.1.332")),
        ({"user-agent": "curl/8"}, user_id("user_ab_account__session_7d0e"), None),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_a_call_names_its_session(headers: dict[str, str], body: dict[str, Any], expected: Session | None) -> None:
    assert session(headers, body) == expected


@pytest.mark.parametrize(("agent", "vendor"), [("codex", "openai_responses"), ("claude_code", "anthropic_messages")])
def test_an_agents_bodies_are_its_vendors(agent: str, vendor: str) -> None:
    assert dialect(agent).lift_request is dialect(vendor).lift_request


def recorded(agent: str) -> dict[str, Any]:
    """The first request of the npm package (Codex 0.171.0, Claude Code 2.1.332), run headless; long texts are cut."""
    return json.loads((Path(__file__).parent / "recorded" / f"{agent}.json").read_text())


@pytest.mark.parametrize("agent", ["codex", "claude_code"])
def test_what_an_agent_really_sent_comes_back_and_names_its_session(agent: str) -> None:
    call = recorded(agent)
    it = dialect(agent)
    assert it.lower_request(it.lift_request(call["body"])) == call["body"]
    found = session(call["headers"], call["body"])
    assert found is not None and (found.agent, found.child) == (agent, None) and found.id
    assert session({}, call["body"]) is None or agent == "codex"


@pytest.mark.parametrize(("agent", "tools"), [("codex", {"exec", "wait"}), ("claude_code", {"Agent", "Bash"})])
def test_an_agents_tools_cross(agent: str, tools: set[str]) -> None:
    """Codex gives its tools in an item of the input."""
    crossed = convert(agent, "openai_chat", recorded(agent)["body"])
    names = {tool[tool["type"]]["name"] for tool in crossed.wire["tools"]}
    assert tools <= names
