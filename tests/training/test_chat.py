"""Loss stands on what the assistant has to produce, in every family of templates, and on nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.training.chat import Chat, read_messages
from tests.training.templates import CHATML, FAMILIES, Family, tokenizer

BY_NAME = {family.name: family for family in FAMILIES}
names = st.sampled_from(sorted(BY_NAME))
# Blanks at the edges are left to a test of their own: a token may reach over the edge there.
contents = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n"), min_size=1
).filter(lambda text: text == text.strip() and "▁" not in text)


@cache
def chat_of(name: str) -> tuple[Chat, object]:
    inner = tokenizer(BY_NAME[name])
    return Chat(inner), inner


def produced(name: str, messages: list[dict[str, str]]) -> list[str]:
    """The texts that runs of tokens with loss decode to."""
    chat, inner = chat_of(name)
    document = chat.document("row", messages)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], document.loss.astype(int), [0]])))
    return [inner.decode(document.tokens[a:b]) for a, b in edges.reshape(-1, 2)]


def conversation(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


@given(names, st.lists(st.tuples(contents, contents), min_size=1, max_size=3))
@example("chatml", [("What is assistant?", "assistant")])
@example("mistral", [("hello", "hello"), ("hello", "hello")])
@example("chatml", [("<|im_end|>", "a <|im_start|> b")])
@example("llama3", [("1", "2<|eot_id|>3")])
def test_the_mask_decodes_to_the_message_and_its_end(name, turns):
    messages = conversation(*(text for turn in turns for text in turn))
    family: Family = BY_NAME[name]
    expected = [family.produced(answer, index == len(turns) - 1) for index, (_, answer) in enumerate(turns)]
    assert produced(name, messages) == expected


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_blanks_at_the_edges_stay_with_the_message(name):
    [text] = produced(name, conversation("question", "  \n answer \n\n"))
    assert BY_NAME[name].produced("  \n answer \n\n", True) in text
    assert "question" not in text and "assistant" not in text


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_tokens_are_those_of_the_template(name):
    chat, inner = chat_of(name)
    messages = conversation("one", "two", "three", "four")
    assert chat.document("row", messages).tokens.tolist() == inner.apply_chat_template(messages, return_dict=False)


def test_thoughts_are_produced_in_the_last_turn_and_gone_from_the_others():
    messages = conversation("a", "<think>\nfirst\n</think>\n\nx", "b", "<think>\nsecond\n</think>\n\ny")
    assert produced("qwen-thinking", messages) == ["x<|im_end|>", "<think>\nsecond\n</think>\n\ny<|im_end|>"]


def test_a_message_that_the_template_leaves_out_is_an_error_and_no_guess():
    inner = tokenizer(BY_NAME["chatml"])
    inner.chat_template = CHATML.replace("in messages %}", "in messages[-2:] %}", 1)
    with pytest.raises(UserError, match=r"message 1 \(assistant\) cannot be found"):
        Chat(inner).document("row", conversation("a", "banana", "c", "d"))


def test_a_message_that_the_template_rewrites_is_learned_as_it_is_written():
    inner = tokenizer(BY_NAME["chatml"])
    inner.chat_template = CHATML.replace("message['content'] +", "message['content'] | upper +")
    document = Chat(inner).document("row", conversation("a", "banana"))
    assert inner.decode(document.tokens[document.loss]) == "BANANA<|im_end|>"


def test_a_model_without_a_chat_template_is_refused_with_the_way_out():
    inner = tokenizer(BY_NAME["chatml"])
    inner.chat_template = None
    with pytest.raises(UserError, match=r"^sft\.model: has no chat template.*chat_template\.jinja"):
        Chat(inner, field="sft.model")


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"role": "user"}]', '[{"role": "user", "content": 3}]'])
def test_messages_that_are_none_are_refused_by_the_name_of_their_row(text):
    with pytest.raises(UserError, match="row r-17"):
        read_messages(text, row_id="r-17")
