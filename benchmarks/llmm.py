"""Conversions between vendors' interfaces, a second, against litellm on the same messages in the same run.

    python -m benchmarks.llmm

Requests are conversations of 2, 20 and 100 messages with a system prompt, tools, and tool calls, parallel ones too, as
an agent leads them; answers hold a text and two calls. Both systems convert the whole of them, from the JSON object of
one wire to that of the other: where litellm's answer is an object of its own, it is dumped as litellm's proxy does it.
Each gets fresh copies, made outside of the measured time, since litellm changes what it is given; rounds take turns,
and the ratio of a conversion is the median over the rounds. The bar is on the median of all conversions; their
geometric mean and the least are told as well. `listed` is ours with the list of losses, which litellm has no word for.
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

from posttrain.llmm.dialects.crossing import Kind, convert, translate

BAR = 10.0
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network for prices otherwise
Convert = Callable[[Any], Any]


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


def answer() -> dict[str, Any]:
    """An answer on Anthropic's wire."""
    content = anthropic(2)["messages"][1]["content"]
    usage = {"input_tokens": 812, "output_tokens": 64, "cache_read_input_tokens": 512}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content,
        "stop_reason": "tool_use", "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def requests() -> dict[tuple[str, str], Convert]:
    """litellm's conversion of a whole request, for each pair of dialects that it converts straight."""
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig
    from litellm.llms.anthropic.messages.adapters.transformation import LiteLLMAnthropicMessagesAdapter
    from litellm.llms.gemini.chat.transformation import GoogleAIStudioGeminiConfig
    from litellm.llms.vertex_ai.gemini.transformation import transform_request_body
    from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

    claude, gemini, adapter = AnthropicConfig(), GoogleAIStudioGeminiConfig(), LiteLLMAnthropicMessagesAdapter()

    def to_anthropic(body: dict[str, Any]) -> Any:
        model, messages = body.pop("model"), body.pop("messages")
        return claude.transform_request(model, messages, claude.map_openai_params(body, {}, model, False), {}, {})

    def to_google(body: dict[str, Any]) -> Any:
        messages, model, _ = body.pop("messages"), "gemini-2.5-pro", body.pop("model")
        return transform_request_body(
            messages=messages, model=model, optional_params=gemini.map_openai_params(body, {}, model, False),
            custom_llm_provider="gemini", litellm_params={}, cached_content=None,
        )  # fmt: skip

    def from_responses(body: Any) -> Any:
        model, given = body.pop("model"), body.pop("input")
        return LiteLLMCompletionResponsesConfig.transform_responses_api_request_to_chat_completion_request(
            model=model, input=given, responses_api_request=body
        )

    return {
        ("anthropic_messages", "openai_chat"): lambda body: adapter.translate_anthropic_to_openai(body),
        ("openai_chat", "anthropic_messages"): to_anthropic,
        ("openai_chat", "google_genai"): to_google,
        ("openai_responses", "openai_chat"): from_responses,
    }


def answers() -> dict[tuple[str, str], Convert]:
    """litellm's conversion of an answer."""
    import httpx
    from litellm import ModelResponse
    from litellm.google_genai.adapters.transformation import GoogleGenAIAdapter
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig
    from litellm.llms.anthropic.messages.adapters.transformation import LiteLLMAnthropicMessagesAdapter
    from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

    claude, google, said = LiteLLMAnthropicMessagesAdapter(), GoogleGenAIAdapter(), httpx.Response(200)
    return {
        ("anthropic_messages", "openai_chat"): lambda wire: (
            AnthropicConfig()
            .transform_parsed_response(completion_response=wire, raw_response=said, model_response=ModelResponse())
            .model_dump(exclude_none=True)
        ),
        ("openai_chat", "anthropic_messages"): lambda wire: claude.translate_openai_response_to_anthropic(
            ModelResponse(**wire)
        ),
        ("openai_chat", "google_genai"): lambda wire: google.translate_completion_to_generate_content(
            ModelResponse(**wire)
        ),
        ("openai_chat", "openai_responses"): lambda wire: (
            LiteLLMCompletionResponsesConfig.transform_chat_completion_response_to_responses_api_response(
                request_input="", responses_api_request={}, chat_completion_response=wire
            ).model_dump(exclude_none=True)
        ),
    }


def rate(work: Convert, body: dict[str, Any], count: int) -> float:
    """Conversions a second of processor time, so that whoever else runs does not count."""
    bodies = [copy.deepcopy(body) for _ in range(count)]
    began = time.process_time()
    for each in bodies:
        work(each)
    return count / (time.process_time() - began)


def measure(theirs: Convert, source: str, target: str, kind: Kind, body: dict[str, Any], rounds: int,
            count: int) -> list[float]:  # fmt: skip
    """Medians: ours, ours listed, theirs, and the two ratios."""
    found = []
    theirs(copy.deepcopy(body))
    for _ in range(rounds):
        ours = rate(lambda wire: translate(source, target, wire, kind), body, count)
        listed = rate(lambda wire: convert(source, target, wire, kind), body, count)
        other = rate(theirs, body, max(3, count // 8))
        found.append((ours, listed, other, ours / other, listed / other))
    return [statistics.median(column) for column in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, nargs="+", default=[2, 20, 100])
    given = parser.parse_args()
    work: list[tuple[str, str, Kind, Convert, dict[str, Any], str, int]] = []
    for (source, target), theirs in requests().items():
        for messages in given.messages:
            body = translate("anthropic_messages", source, anthropic(messages))
            work.append((source, target, "request", theirs, body, str(messages), max(10, 2000 // messages)))
    for (source, target), theirs in answers().items():
        body = translate("anthropic_messages", source, answer(), "response")
        work.append((source, target, "response", theirs, body, "answer", 1000))
    print(f"{'conversion':<38} {'':>8} {'ours/s':>9} {'listed/s':>9} {'litellm/s':>9} {'ratio':>7} {'listed':>7}")
    ratios = []
    for source, target, kind, theirs, body, what, count in work:
        ours, listed, other, ratio, plain = measure(theirs, source, target, kind, body, given.rounds, count)
        ratios.append(ratio)
        shown = f"{ours:>9.0f} {listed:>9.0f} {other:>9.0f} {ratio:>7.1f} {plain:>7.1f}"
        print(f"{source + ' to ' + target:<38} {what:>8} {shown}", flush=True)
    middle = statistics.median(ratios)
    verdict = "holds" if middle >= BAR else "FAILS"
    print(
        f"\n{verdict} median {middle:.1f} times litellm (bar {BAR:g}), geometric mean "
        f"{statistics.geometric_mean(ratios):.1f}, least {min(ratios):.1f}"
    )
    sys.exit(middle < BAR)


if __name__ == "__main__":
    main()
