"""A conversation as an agent leads it: calls of a model with a tool in between, on Anthropic's wire."""

from __future__ import annotations

from typing import Any

ANSWERS = ["let me count", "again", "done: 2"]


def anthropic_calls(turns: int = 3) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(request, response) of each call; every request repeats what was said before it, as clients do."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "count"}]
    calls = []
    for number in range(turns):
        request = {
            "model": "m",
            "max_tokens": 64,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "run", "input_schema": {"type": "object"}}],
            "messages": list(messages),
        }
        content: list[dict[str, Any]] = [{"type": "text", "text": ANSWERS[min(number, 2)]}]
        last = number == turns - 1
        if not last:
            content.append({"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}})
        response = {
            "id": f"msg{number}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": "end_turn" if last else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 3},
        }
        calls.append((request, response))
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": str(number)}
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    return calls
