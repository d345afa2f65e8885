"""The vendors' own SDKs against the gateway: answers, streams, tools, errors as their own exception classes."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types as google_types

from tests.llmm.gateway.conftest import CLIENT, Gateway

pytestmark = pytest.mark.xdist_group("gateway")  # one gateway for all that ask it nothing special

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}}


def script(*answers: str) -> str:
    return f"SCRIPT {json.dumps(answers)} END"


def openai_of(gateway: Gateway, key: str = CLIENT) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key=key, max_retries=0)


def anthropic_of(gateway: Gateway, key: str = CLIENT) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=0)


def google_of(gateway: Gateway, key: str = CLIENT) -> genai.Client:
    return genai.Client(api_key=key, http_options={"base_url": gateway.url})


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions(shared: Gateway, stream: bool):
    asked: dict[str, Any] = {
        "model": "any", "messages": [{"role": "user", "content": script("Hi, 你好 😀")}], "n": 2, "logprobs": True,
        "top_logprobs": 2,
    }  # fmt: skip
    if stream:
        chunks = list(
            openai_of(shared).chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        )
        texts = ["", ""]
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert chunks[-1].usage is not None
        usage, tokens = (
            chunks[-1].usage,
            sum(len(c.logprobs.content or ()) for chunk in chunks for c in chunk.choices if c.logprobs),
        )
    else:
        whole = openai_of(shared).chat.completions.create(**asked)
        texts, usage = [choice.message.content for choice in whole.choices], whole.usage
        assert whole.choices[0].logprobs.content[0].top_logprobs[1].logprob < 0
        tokens = sum(len(choice.logprobs.content) for choice in whole.choices)
    assert texts == ["Hi, 你好 😀"] * 2
    assert tokens == usage.completion_tokens > 4


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_with_tools_over_turns(shared: Gateway, stream: bool):
    client, messages = openai_of(shared), [{"role": "user", "content": script("So: " + CALL, CALL, "done")}]
    for turn in range(3):
        asked = {"model": "m", "messages": messages, "tools": [TOOL]}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                answer = events.get_final_completion().choices[0]
        else:
            answer = client.chat.completions.create(**asked).choices[0]
        messages.append(answer.message.to_dict())
        if turn < 2:
            [call] = answer.message.tool_calls
            assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
            assert answer.finish_reason == "tool_calls"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "2"})
    assert (answer.message.content, answer.finish_reason) == ("done", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_responses(shared: Gateway, stream: bool):
    client = openai_of(shared)
    tools = [{"type": "function", "name": "add", "parameters": SCHEMA}]
    asked = {"model": "m", "input": script("So: " + CALL, "done"), "tools": tools}
    if stream:
        with client.responses.stream(**asked) as events:
            kinds = [event.type for event in events]
            first = events.get_final_response()
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    else:
        first = client.responses.create(**asked)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"a": 1} and first.output_text.startswith("So:")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
    second = client.responses.create(model="m", input=[output], previous_response_id=first.id, tools=tools)
    assert second.output_text == "done"
    with pytest.raises(openai.NotFoundError, match="no response"):
        client.responses.create(model="m", input="x", previous_response_id="resp_none")


@pytest.mark.parametrize("stream", [False, True])
def test_messages(shared: Gateway, stream: bool):
    client = anthropic_of(shared)
    messages: list[Any] = [{"role": "user", "content": script("So: " + CALL, "done")}]
    tools: list[Any] = [{"name": "add", "input_schema": SCHEMA}]
    for turn in range(2):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 500, "messages": messages, "tools": tools}
        if stream:
            with client.messages.stream(**asked) as events:
                answer = events.get_final_message()
        else:
            answer = client.messages.create(**asked)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        if turn == 0:
            assert answer.stop_reason == "tool_use" and answer.content[-1].input == {"a": 1}
            result = {"type": "tool_result", "tool_use_id": answer.content[-1].id, "content": "2"}
            messages.append({"role": "user", "content": [result]})
    assert (answer.content[0].text, answer.stop_reason) == ("done", "end_turn")
    counted = client.messages.count_tokens(model="m", messages=messages[:1], tools=tools)
    assert (
        counted.input_tokens
        == client.messages.create(model="m", max_tokens=9, messages=messages[:1], tools=tools).usage.input_tokens
    )


@pytest.mark.parametrize("stream", [False, True])
def test_generate_content(shared: Gateway, stream: bool):
    client = google_of(shared)
    declared = google_types.FunctionDeclaration(name="add", parameters_json_schema=SCHEMA)
    config = google_types.GenerateContentConfig(tools=[google_types.Tool(function_declarations=[declared])])
    said = google_types.Content(role="user", parts=[google_types.Part(text=script("So: " + CALL, "done"))])
    if stream:
        chunks = list(client.models.generate_content_stream(model="m", contents=[said], config=config))
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        assert chunks[-1].usage_metadata.candidates_token_count > 3
    else:
        parts = client.models.generate_content(model="m", contents=[said], config=config).candidates[0].content.parts
    [call] = [part.function_call for part in parts if part.function_call]
    assert (call.name, call.args) == ("add", {"a": 1})
    result = google_types.Part.from_function_response(name="add", response={"sum": 2})
    asked = [said, google_types.Content(role="model", parts=parts), google_types.Content(role="user", parts=[result])]
    assert client.models.generate_content(model="m", contents=asked, config=config).text == "done"


def test_a_form_and_a_forced_call_reach_the_engine(shared: Gateway):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    openai_of(shared).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "form"}], response_format=form
    )
    assert shared.told()["seen"][-1]["sampling_params"]["structured_outputs"] == {"json": SCHEMA}
    anthropic_of(shared).messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "forced"}],
        tools=[{"name": "add", "input_schema": SCHEMA}], tool_choice={"type": "tool", "name": "add"},
    )  # fmt: skip
    tag = json.loads(shared.told()["seen"][-1]["sampling_params"]["structured_outputs"]["structural_tag"])
    assert tag["format"]["begin"] == '<tool_call>\n{"name": "add", "arguments": '


def test_stop_texts_and_limits(shared: Gateway):
    asked = {"model": "m", "messages": [{"role": "user", "content": script("one, two, three")}]}
    stopped = openai_of(shared).chat.completions.create(**asked, stop=[", t"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("one", "stop")
    cut = openai_of(shared).chat.completions.create(**asked, max_tokens=2).choices[0]
    assert cut.finish_reason == "length"
    ended = anthropic_of(shared).messages.create(**asked, max_tokens=99, stop_sequences=[", t"])
    assert (ended.stop_reason, ended.stop_sequence) == ("stop_sequence", ", t")


def test_models_are_listed_for_each_vendor(shared: Gateway):
    assert [model.id for model in openai_of(shared).models.list()] == ["policy"]
    assert [model.id for model in anthropic_of(shared).models.list()] == ["policy"]
    google = google_of(shared)  # it closes its connections when it goes
    assert [model.name for model in google.models.list()] == ["models/policy"]
    assert openai_of(shared).models.retrieve("policy").id == "policy"


IMAGE = "data:image/png;base64," + base64.b64encode(b"x").decode()


def test_openai_errors_are_its_sdks_own(shared: Gateway):
    create = openai_of(shared).chat.completions.create
    with pytest.raises(openai.AuthenticationError, match="key is not known"):
        openai_of(shared, "wrong").models.list()
    with pytest.raises(openai.UnprocessableEntityError, match="image"):
        image = {"type": "image_url", "image_url": {"url": IMAGE}}
        create(model="m", messages=[{"role": "user", "content": [image]}])
    with pytest.raises(openai.UnprocessableEntityError, match="n must be 1"):
        create(model="m", messages=[{"role": "user", "content": "x"}], n=1000)
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="m", messages=[{"role": "user", "content": "x" * 20000}])
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="no version"):
        create(model="m", messages=[{"role": "user", "content": "x"}], extra_headers={"x-posttrain-version": "none"})
    with pytest.raises(openai.InternalServerError, match="a defect"):
        create(model="m", messages=[{"role": "user", "content": script("@500")}])
    with pytest.raises(openai.APIStatusError) as large:
        create(model="m", messages=[{"role": "user", "content": "x" * (33 << 20)}])
    assert large.value.status_code == 413
    with pytest.raises(openai.APIError, match="lost in the middle"):
        list(create(model="m", messages=[{"role": "user", "content": script("abc @die")}], stream=True))


def test_anthropic_errors_are_its_sdks_own(shared: Gateway):
    client = anthropic_of(shared)
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9}
    with pytest.raises(anthropic.AuthenticationError):
        anthropic_of(shared, "wrong").messages.create(**asked, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.UnprocessableEntityError):
        client.messages.create(**asked, messages=[{"role": "nobody", "content": "x"}])  # type: ignore[list-item]
    with pytest.raises(anthropic.RequestTooLargeError):
        client.messages.create(**asked, messages=[{"role": "user", "content": "x" * (33 << 20)}])
    with pytest.raises(anthropic.InternalServerError):
        client.messages.create(**asked, messages=[{"role": "user", "content": script("@500")}])
    with (
        pytest.raises(anthropic.APIStatusError, match="lost in the middle"),
        client.messages.stream(**asked, messages=[{"role": "user", "content": script("abc @die")}]) as events,
    ):
        events.get_final_message()


def test_google_errors_are_its_sdks_own(shared: Gateway):
    with pytest.raises(google_errors.ClientError) as unknown:
        wrong = google_of(shared, "wrong")
        wrong.models.generate_content(model="m", contents="x")
    assert (unknown.value.code, unknown.value.status) == (401, "UNAUTHENTICATED")
    with pytest.raises(google_errors.ServerError):
        right = google_of(shared)
        right.models.generate_content(model="m", contents=script("@500"))


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"null", b'{"messages": 1}', b'{"messages": [1]}', b"{}"])
def test_what_is_no_request_is_told(shared: Gateway, body: bytes):
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent"):
        answer = httpx.post(shared.url + path, content=body, headers={"authorization": f"Bearer {CLIENT}"})
        if path == "/v1/responses" and body == b"{}":
            continue  # a request for nothing in particular
        assert answer.status_code in (400, 422), (path, answer.text)
        assert answer.json()["error"]["message"]


def test_a_client_that_leaves_ends_the_engines_work(shared: Gateway):
    async def leave() -> None:
        client = openai.AsyncOpenAI(base_url=shared.url + "/v1", api_key=CLIENT, max_retries=0)
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": script("a @long")}]}
        stream = await client.chat.completions.create(**asked, stream=True)
        async for _ in stream:
            break
        await stream.close()
        waiting: Any = {"model": "m", "messages": [{"role": "user", "content": script("a @hang")}]}
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(**waiting, timeout=0.3)
        await client.close()

    before = shared.metric("abandoned_total").get("abandoned_total", 0)
    asyncio.run(leave())
    for _ in range(100):
        if shared.metric("running").get("running") == 0:
            break
        asyncio.run(asyncio.sleep(0.05))
    assert shared.metric("running")["running"] == 0
    assert shared.metric("abandoned_total")["abandoned_total"] == before + 2
    assert len(shared.told()["aborted"]) >= 1
