"""The renderer against Transformers' own: the same text, the same ids, and the place of each message in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.llmm.tokens.lower import to_completion, to_tokens
from posttrain.llmm.tokens.messages import TemplateMessages
from posttrain.llmm.tokens.template import TEMPLATE, ChatTemplate
from tests.llmm.tokens.families import FAMILIES, model, tokenizer

TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "description": "one"}}, "required": ["a"]}}}  # fmt: skip
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and "<" not in text and "[" not in text
)
JSON = dict[str, Any]


def call(arguments: Any, number: int = 0) -> JSON:
    return {"id": f"call0000{number}", "type": "function", "function": {"name": "add", "arguments": arguments}}


@st.composite
def conversations(draw: st.DrawFn, name: str) -> list[JSON]:
    """System, users and assistants in turn, calls with their results where the family has them. Contents are marked,
    so that each is found in one place only."""
    family, messages, number = FAMILIES[name], [], iter(range(100))

    def say(role: str) -> str:
        return f"{role}{next(number)}: {draw(words)}."

    if draw(st.booleans()) and name != "mistral":
        messages.append({"role": "system", "content": say("s")})
    for _ in range(draw(st.integers(0, 2))):
        messages.append({"role": "user", "content": say("u")})
        if not family.alternates and draw(st.booleans()) and model(name).format.name != "plain":
            arguments = '{"a": 1}' if name == "deepseekv3" else {"a": draw(st.integers())}
            thought = {"reasoning_content": say("w"), "thinking": say("w")} if draw(st.booleans()) else {}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call(arguments)]} | thought)
            messages.append({"role": "tool", "tool_call_id": "call00000", "name": "add", "content": say("t")})
        messages.append({"role": "assistant", "content": say("a")})
    messages.append({"role": "user", "content": say("u")})
    return messages


@pytest.mark.parametrize("name", sorted(FAMILIES))
@given(st.data())
def test_text_ids_and_places_are_the_templates_own(name: str, data: st.DataObject):
    messages = data.draw(conversations(name))
    tools = [TOOL] if any("tool_calls" in message for message in messages) else None
    theirs = tokenizer(name).apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    rendering = model(name).template.render(messages, tools)
    assert rendering.text == theirs

    places = [(piece.start, piece.end) for piece in rendering.pieces]
    assert [end for _, end in places[:-1]] == [start for start, _ in places[1:]]
    assert (places[0][0], places[-1][1]) == (0, len(theirs))
    for index, message in enumerate(messages):
        if not message["content"] or message["role"] in FAMILIES[name].shares:
            continue
        at = theirs.index(message["content"].partition(" ")[0])  # some write what follows as JSON
        [owner] = [piece.message for piece in rendering.pieces if piece.start <= at < piece.end]
        assert owner == index, (message, rendering)

    given_ = TemplateMessages(tuple(messages), tuple(range(len(messages))), ())
    tokens = to_tokens(to_completion(rendering, given_), model(name).codec)
    theirs_ids = tokenizer(name).apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False
    )
    assert list(tokens.ids) == theirs_ids
    assert ir.tiles(tokens.spans, len(tokens.ids)) and not any(span.trainable for span in tokens.spans)


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"mistral"}))
def test_what_asks_the_model_to_go_on_is_the_templates(name: str):
    rendering = model(name).template.render([{"role": "user", "content": "hello"}])
    without = model(name).template.render([{"role": "user", "content": "hello"}], generation=False)
    asks = rendering.pieces[-1]
    assert asks.message == TEMPLATE and "hello" in rendering.text[: asks.start]
    assert without.text.startswith(rendering.text[: asks.start]) and without.text != rendering.text


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_spans_of_tokens_decode_to_the_pieces(name: str):
    messages = [{"role": "user", "content": "Grüße, 你好"}, {"role": "assistant", "content": "7 😀"}]
    messages.append({"role": "user", "content": "more"})
    rendering = model(name).template.render(messages)
    given_ = TemplateMessages(tuple(messages), (0, 1, 2), ())
    completion = to_completion(rendering, given_)
    tokens = to_tokens(completion, model(name).codec)
    texts = [model(name).codec.decode(tokens.ids[span.start : span.end]) for span in tokens.spans]
    assert texts == [completion.text[span.start : span.end] for span in completion.spans]


def test_no_content_can_forge_a_mark():
    source = FAMILIES["chatml"].template
    template = ChatTemplate(source)
    forged = template._nonce[::-1]
    messages = [{"role": "user", "content": f"\ue000{forged}:0\ue001 \ue000:1\ue001"}]
    assert template.render(messages).text == ChatTemplate(source).render(messages).text
    assert messages[0]["content"] in template.render(messages).text


def test_a_conversation_keeps_its_first_date():
    first = datetime(2026, 11, 30, 23, 59)
    template = model("llama3_1").template
    message = [{"role": "user", "content": "a"}]
    assert template.render(message, now=first).text == template.render(message, now=first).text
    assert (
        "x" + datetime(2026, 12, 1).strftime("%d")
        in ChatTemplate("x{{ strftime_now('%d') }}").render(message, now=datetime(2026, 12, 1)).text
    )


def test_what_a_template_refuses_is_told_in_one_line():
    with pytest.raises(UserError, match="refuses the messages: Conversation roles must alternate"):
        model("gemma3").template.render([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    with pytest.raises(UserError, match="chat_template: is no template: line 1"):
        ChatTemplate("{% for %}")
