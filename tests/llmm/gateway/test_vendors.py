"""Pass-through: a second gateway plays the vendor, whatever the vendor's dialect and the client's; the trace has it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google.genai import types as google_types

from posttrain.llmm import trace
from posttrain.llmm.replay import replay
from tests.llmm.gateway.conftest import CLIENT, ENVIRONMENT, Gateway, gateway
from tests.llmm.gateway.test_clients import CALL, SCHEMA, TOOL, anthropic_of, google_of, openai_of, script

pytestmark = pytest.mark.xdist_group("gateway")

DIALECTS = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": "", "google_genai": ""}


@pytest.fixture(scope="module")
def passing(shared: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Models named for a dialect are served by a vendor that speaks it; `dead-…` by one that does not answer."""
    vendors = [
        {
            "name": f"a-{name}",
            "dialect": name,
            "url": shared.url + path,
            "variable": "CLIENT_KEY",
            "models": [f"{name}-*"],
        }
        for name, path in DIALECTS.items()
    ]
    other: dict[str, Any] = {"dialect": "openai_chat", "variable": "LIMITED_KEY"}
    vendors += [
        other | {"name": "dead", "url": "http://127.0.0.1:9", "models": ["dead-*"]},
        other | {"name": "closed", "url": shared.url + "/v1", "models": ["closed-*"]},
    ]
    keys = [{"name": "client", "variable": "OTHER_KEY"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENT, "OTHER_KEY", "the clients' own")
        with gateway(tmp_path_factory.mktemp("passing"), vendors=vendors, keys=keys) as served:
            yield served


def converse(served: Gateway, key: str, spoken: str, model: str, stream: bool) -> list[str]:
    """Two turns with a tool's call in between; what was said in both."""
    prompt = script("So:\n" + CALL, "done")
    if spoken == "openai_chat":
        client, messages = openai_of(served, key), [{"role": "user", "content": prompt}]
        said = []
        for _ in range(2):
            asked: Any = {"model": model, "messages": messages, "tools": [TOOL]}
            if stream:
                with client.chat.completions.stream(**asked) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**asked).choices[0].message
            said.append(message.content or "")
            messages.append(message.to_dict())
            for call in message.tool_calls or ():
                assert json.loads(call.function.arguments) == {"a": 1}
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "2"})
        return said
    if spoken == "openai_responses":
        client, tools = openai_of(served, key), [{"type": "function", "name": "add", "parameters": SCHEMA}]
        asked = {"model": model, "input": prompt, "tools": tools}
        if stream:
            with client.responses.stream(**asked) as events:
                first = events.get_final_response()
        else:
            first = client.responses.create(**asked)
        [call] = [item for item in first.output if item.type == "function_call"]
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
        second = client.responses.create(model=model, input=[output], previous_response_id=first.id, tools=tools)
        return [first.output_text, second.output_text]
    if spoken == "anthropic_messages":
        vendor, said = anthropic_of(served, key), []
        messages = [{"role": "user", "content": prompt}]
        for _ in range(2):
            asked = {"model": model, "max_tokens": 99, "messages": messages,
                     "tools": [{"name": "add", "input_schema": SCHEMA}]}  # fmt: skip
            if stream:
                with vendor.messages.stream(**asked) as events:
                    answer = events.get_final_message()
            else:
                answer = vendor.messages.create(**asked)
            said.append("".join(block.text for block in answer.content if block.type == "text"))
            messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
            calls = [block for block in answer.content if block.type == "tool_use"]
            messages += [
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": c.id, "content": "2"}]}
                for c in calls
            ]
        return said
    google = google_of(served, key)
    declared = google_types.FunctionDeclaration(name="add", parameters_json_schema=SCHEMA)
    config = google_types.GenerateContentConfig(tools=[google_types.Tool(function_declarations=[declared])])
    contents: list[Any] = [google_types.Content(role="user", parts=[google_types.Part(text=prompt)])]
    said = []
    for _ in range(2):
        if stream:
            chunks = google.models.generate_content_stream(model=model, contents=contents, config=config)
            parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        else:
            parts = (
                google.models.generate_content(model=model, contents=contents, config=config)
                .candidates[0]
                .content.parts
            )
        said.append("".join(part.text or "" for part in parts))
        contents.append(google_types.Content(role="model", parts=parts))
        if any(part.function_call for part in parts):
            result = google_types.Part.from_function_response(name="add", response={"sum": 2})
            contents.append(google_types.Content(role="user", parts=[result]))
    return said


PAIRS = list(itertools.product(sorted(DIALECTS), repeat=2))
AT_HOME = [(name, name, False) for name in sorted(DIALECTS)]


@pytest.mark.parametrize(
    ("spoken", "vendor", "stream"),
    [*((*pair, True) for pair in PAIRS), *AT_HOME, *((*pair, False) for pair in PAIRS[1::5])],
)
def test_any_client_is_answered_by_any_vendor(passing: Gateway, spoken: str, vendor: str, stream: bool) -> None:
    name, key = passing.trajectory("passed")
    said = converse(passing, key, spoken, f"{vendor}-large", stream)
    assert [text.strip() for text in said] == ["So:", "done"]
    ended = passing.finish(name)
    assert (ended["turns"], ended["rows"]) == (0, 0)
    ledger = passing.ledger(name)
    assert replay(ledger) is None
    asked = [event for event in ledger if isinstance(event, trace.Asked)]
    assert [(e.dialect, e.vendor, e.failure) for e in asked] == [(spoken, f"a-{vendor}", None)] * 2
    crossed = [event for event in ledger if isinstance(event, trace.Converted)]
    assert len(crossed) == (0 if spoken == vendor else 4)
    [tool] = [event for event in ledger if isinstance(event, trace.Used)]
    assert (tool.name, tool.cause) == ("add", asked[0].id)
    assert asked[1].cause == tool.id or spoken == vendor == "openai_responses"
    assert passing.told()["seen"] == []  # the policy's engine was not asked


def test_a_vendors_errors_are_its_own_and_its_key_stays_here(passing: Gateway, shared: Gateway) -> None:
    create = openai_of(passing, "the clients' own").chat.completions.create
    with pytest.raises(openai.UnprocessableEntityError, match="n must be 1"):
        create(model="openai_chat-x", messages=[{"role": "user", "content": "x"}], n=1000)
    with pytest.raises(openai.UnprocessableEntityError, match="answers 422"):
        create(model="anthropic_messages-x", messages=[{"role": "user", "content": "x"}], max_tokens=0)
    with pytest.raises(openai.APIError, match="lost in the middle"):
        list(create(model="openai_chat-x", messages=[{"role": "user", "content": script("a @die")}], stream=True))
    with pytest.raises(anthropic.APIStatusError, match="lost in the middle"):
        asked: Any = {
            "model": "openai_chat-x",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": script("a @die")}],
        }
        list(anthropic_of(passing, "the clients' own").messages.create(**asked, stream=True))
    with pytest.raises(openai.InternalServerError, match="dead was lost"):
        create(model="dead-x", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.InternalServerError, match="does not take the gateway's key"):
        create(model="closed-x", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.AuthenticationError):  # the vendor's key is none of a client's
        openai_of(passing, CLIENT).models.list()
    log = (passing.workspace / "runs" / "r" / "gateway" / "log").read_text()
    assert CLIENT not in log


def test_a_usage_block_that_never_comes_is_missed_by_nobody(passing: Gateway) -> None:
    """A stream of Chat Completions has one only where the client asks for it."""
    name, key = passing.trajectory("unused")
    asked: Any = {"model": "openai_chat-x", "messages": [{"role": "user", "content": script("hi")}], "stream": True}
    chunks = list(openai_of(passing, key).chat.completions.create(**asked))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hi"
    assert all(chunk.usage is None for chunk in chunks)
    passing.finish(name)
    ledger = passing.ledger(name)
    [call] = [event for event in ledger if isinstance(event, trace.Asked)]
    assert call.response is not None and call.response["choices"][0]["message"]["content"] == "hi"


def test_the_policy_and_a_vendor_in_one_run(passing: Gateway) -> None:
    name, key = passing.trajectory("mixed")
    client = openai_of(passing, key).chat.completions
    for model in ("policy", "openai_chat-x", "policy"):
        client.create(model=model, messages=[{"role": "user", "content": model}])
    assert passing.finish(name)["rows"] == 2
    ledger = passing.ledger(name)
    assert [e.vendor for e in ledger if isinstance(e, trace.Asked)] == [None, "a-openai_chat", None]


def test_tokens_are_counted_by_whoever_serves_the_model(passing: Gateway, shared: Gateway) -> None:
    client = anthropic_of(passing, "the clients' own")
    messages: Any = [{"role": "user", "content": "count me"}]
    theirs = client.messages.count_tokens(model="anthropic_messages-x", messages=messages)
    assert theirs == anthropic_of(shared).messages.count_tokens(model="m", messages=messages)
    with pytest.raises(anthropic.NotFoundError, match="counts no tokens"):
        client.messages.count_tokens(model="openai_chat-x", messages=messages)


def test_a_vendor_without_a_key_is_told_before_anything_starts() -> None:
    from posttrain.errors import UserError
    from posttrain.llmm.gateway.settings import VendorSettings
    from posttrain.llmm.gateway.vendors import Vendor

    settings = VendorSettings("v", "openai_chat", "http://x", "NO_SUCH_KEY", ["m"])
    with pytest.raises(UserError, match="NO_SUCH_KEY: is not set"):
        Vendor(settings, os.environ)
    with pytest.raises(UserError, match=r"vendors\.v\.dialect: is no dialect"):
        VendorSettings("v", "openai", "http://x", "K", ["m"])
