"""Codex on OpenAI Responses: whose session a call belongs to, which agent of it calls, and what its tools are.

Its bodies are those of Responses. What is its own: a session and a thread in headers and in `client_metadata` (a
sub-agent has a thread of its own, with its parent's named), and the kind of a sub-agent in `x-openai-subagent`.
Facts from the client's requests as of 0.171 and from what proxies of it read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.session import Session
from posttrain.llmm.ir.origin import Json

NAME: Final = "codex"
TOOLS: Final[Mapping[str, str]] = {
    "exec": "execute", "sleep": "wait", "request_user_input_async": "ask", "followup_task": "spawn",
    "send_message": "spawn", "interrupt_agent": "wait", "list_agents": "read",
    "shell": "execute", "shell_command": "execute", "local_shell": "execute", "exec_command": "execute",
    "write_stdin": "execute", "apply_patch": "edit", "update_plan": "plan", "view_image": "read", "read_file": "read",
    "list_dir": "read", "grep_files": "search", "web_search": "search", "spawn_agent": "spawn", "wait_agent": "wait",
    "wait": "wait", "send_input": "spawn", "close_agent": "wait", "request_user_input": "ask",
}  # fmt: skip


def session(headers: Mapping[str, str], body: Json) -> Session | None:
    """Whose call it is; None where it is not this agent's. Names of headers are in lower case."""
    metadata = body.get("client_metadata")
    said: Json = dict(metadata) if isinstance(metadata, dict) else {}
    turn = _object(headers.get("x-codex-turn-metadata") or said.get("x-codex-turn-metadata"))
    originator = headers.get("originator", "")
    if not originator.startswith("codex") and not headers.get("user-agent", "").startswith("codex") and not turn:
        return None
    id_ = _first(headers.get("session-id"), headers.get("session_id"), said.get("session_id"), turn.get("session_id"))
    thread = _first(headers.get("thread-id"), said.get("thread_id"), turn.get("thread_id"))
    parent = _first(
        headers.get("x-codex-parent-thread-id"), said.get("x-codex-parent-thread-id"), turn.get("parent_thread_id")
    )
    kind = _first(headers.get("x-openai-subagent"), said.get("x-openai-subagent"))
    id_ = _first(id_, headers.get("conversation_id"), body.get("prompt_cache_key"))
    child = thread if parent is not None or kind is not None else None
    version = _first(headers.get("version"), headers.get("user-agent", "").partition("/")[2].partition(" ")[0])
    return Session(agent=NAME, id=id_, child=child, parent=parent, role=kind, version=version)


def _object(text: Any) -> Json:
    try:
        value = msgspec.json.decode(text) if isinstance(text, str) else None
    except msgspec.DecodeError:
        value = None
    return value if isinstance(value, dict) else {}


def _first(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)
