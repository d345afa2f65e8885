"""Conversions between vendors' interfaces, a second, against litellm on the same messages in the same run.

    python -m benchmarks.llmm

Conversations of 2, 20 and 100 messages with tool calls, parallel ones too, as an agent leads them. Each system gets
fresh copies, made outside of the measured time, since litellm changes what it is given; rounds take turns, and the
ratio is the median over the rounds. `listed` is ours with the list of losses, which litellm has no word for.
The overhead of the gateway is in `benchmarks.gateway`.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from posttrain.llmm.dialects.crossing import convert, translate

BAR = 10.0
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network for prices otherwise
Convert = Callable[[dict[str, Any]], Any]


def anthropic(messages: int) -> dict[str, Any]:
    """A conversation of so many messages on Anthropic's wire."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Find the failing test and repair it."}]
    while len(said) < messages:
        n = len(said)
        said.append(
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": f"Step {n}: I look at two files at once."},
                    {
                        "type": "tool_use",
                        "id": f"toolu_{n}a",
                        "name": "read",
                        "input": {"path": f"/src/a{n}.py", "n": n},
                    },
                    {"type": "tool_use", "id": f"toolu_{n}b", "name": "run", "input": {"command": ["pytest", "-q"]}},
                ],
            }
        )
        said.append(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"toolu_{n}a", "content": "def f():\n    return 1\n" * 8},
                    {"type": "tool_result", "tool_use_id": f"toolu_{n}b", "content": "1 failed, 12 passed"},
                ],
            }
        )
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"name": name, "description": f"To {name}.", "input_schema": schema} for name in ("read", "run", "edit")]
    return {
        "model": "claude-sonnet-4-5", "max_tokens": 1024, "system": "You repair programs.", "messages": said,
        "tools": tools, "temperature": 0.5,
    }  # fmt: skip


def pairs() -> dict[tuple[str, str], Convert]:
    """litellm's conversion for each pair of dialects that it converts by a function of its own."""
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt
    from litellm.llms.anthropic.messages.adapters.transformation import LiteLLMAnthropicMessagesAdapter
    from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history
    from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

    adapter = LiteLLMAnthropicMessagesAdapter()
    return {
        ("anthropic_messages", "openai_chat"): adapter.translate_anthropic_to_openai,
        ("openai_chat", "anthropic_messages"): lambda body: anthropic_messages_pt(
            messages=body["messages"][1:], model=body["model"], llm_provider="anthropic"
        ),
        ("openai_chat", "google_genai"): lambda body: _gemini_convert_messages_with_history(body["messages"][1:]),
        ("openai_responses", "openai_chat"): lambda body: (
            LiteLLMCompletionResponsesConfig.transform_responses_api_request_to_chat_completion_request(
                model=body["model"], input=body["input"],
                responses_api_request={k: v for k, v in body.items() if k not in ("model", "input")},  # type: ignore
            )
        ),
    }  # fmt: skip


def rate(work: Convert, body: dict[str, Any], count: int) -> float:
    """Conversions a second of processor time, so that whoever else runs does not count."""
    bodies = [copy.deepcopy(body) for _ in range(count)]
    began = time.process_time()
    for each in bodies:
        work(each)
    return count / (time.process_time() - began)


def measure(theirs: Convert, source: str, target: str, body: dict[str, Any], rounds: int, count: int) -> list[float]:
    """Medians: ours, ours listed, theirs, and the two ratios."""
    found = []
    for _ in range(rounds):
        ours = rate(lambda wire: translate(source, target, wire), body, count)
        listed = rate(lambda wire: convert(source, target, wire), body, count)
        other = rate(theirs, body, max(3, count // 8))
        found.append((ours, listed, other, ours / other, listed / other))
    return [statistics.median(column) for column in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, nargs="+", default=[2, 20, 100])
    given = parser.parse_args()
    print(
        f"{'conversion':<38} {'messages':>8} {'ours/s':>9} {'listed/s':>9} {'litellm/s':>9} {'ratio':>7} {'listed':>7}"
    )
    ratios = []
    for (source, target), theirs in pairs().items():
        for messages in given.messages:
            body = translate("anthropic_messages", source, anthropic(messages))
            theirs(copy.deepcopy(body))
            ours, listed, other, ratio, plain = measure(
                theirs, source, target, body, given.rounds, max(10, 2000 // messages)
            )
            ratios.append(ratio)
            shown = f"{ours:>9.0f} {listed:>9.0f} {other:>9.0f} {ratio:>7.1f} {plain:>7.1f}"
            print(f"{source + ' to ' + target:<38} {messages:>8} {shown}", flush=True)
    middle = statistics.median(ratios)
    verdict = "holds" if middle >= BAR else "FAILS"
    print(f"\n{verdict} median {middle:.1f} times litellm, least {min(ratios):.1f} (bar {BAR:g})")
    sys.exit(middle < BAR)


if __name__ == "__main__":
    main()
