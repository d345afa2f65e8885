"""Claude Code on Anthropic Messages: whose session a call belongs to, which agent of it calls, and what its tools are.

Its bodies are those of Messages. What is its own: a session in `x-claude-code-session-id` and in `metadata.user_id` (a
JSON object, or `user_…_account_…_session_…` in older versions), a sub-agent's id in `x-claude-code-agent-id`. Facts
from the client's requests as of 2.1 and from what proxies of it read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.session import Session
from posttrain.llmm.ir.origin import Json

NAME: Final = "claude_code"
TOOLS: Final[Mapping[str, str]] = {
    "Bash": "execute", "BashOutput": "execute", "KillShell": "execute", "Edit": "edit", "MultiEdit": "edit",
    "Write": "edit", "NotebookEdit": "edit", "Read": "read", "Glob": "search", "Grep": "search", "WebSearch": "search",
    "WebFetch": "read", "TodoWrite": "plan", "ExitPlanMode": "plan", "EnterPlanMode": "plan", "Task": "spawn",
    "Agent": "spawn", "Skill": "read", "AskUserQuestion": "ask", "TaskOutput": "wait", "TaskStop": "wait",
    "ListAgents": "read",
}  # fmt: skip
_OLD = re.compile(r"_session_([0-9A-Za-z-]+)$")


def session(headers: Mapping[str, str], body: Json) -> Session | None:
    """Whose call it is; None where it is not this agent's. Names of headers are in lower case."""
    agent = headers.get("user-agent", "")
    id_ = headers.get("x-claude-code-session-id")
    if not agent.startswith("claude-cli/") and id_ is None:
        return None
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    child = headers.get("x-claude-code-agent-id")
    parent = headers.get("x-claude-code-parent-agent-id") or id_ if child is not None else None
    version = agent.partition("/")[2].partition(" ")[0] or None
    role = "subagent" if child is not None else None
    return Session(agent=NAME, id=id_ or _of_user(user), child=child, parent=parent, role=role, version=version)


def _of_user(user: Any) -> str | None:
    if not isinstance(user, str):
        return None
    if (old := _OLD.search(user)) is not None:
        return old[1]
    try:
        value = msgspec.json.decode(user)
    except msgspec.DecodeError:
        return None
    found = value.get("session_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) and found else None
