"""Parsers of sampled answers: a stream gives what the whole gives, and each family's calls are read."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.llmm.tokens.parsers import FORMATS, Call, Parsed, ReasoningDelta, TextDelta, gather, parse, parser_for

CALL = Call("add", '{"a": 1, "b": "x;y"}')

# An answer with a thought (where the family has them), text and a call, as models of the family write it.
ANSWERS = {
    "hermes": (
        '<think>\nwhy\n</think>\n\nhi\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "x;y"}}\n</tool_call>'
    ),
    "xml_function": (
        "<think>\nwhy\n</think>\n\nhi\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=b>\nx;y\n</parameter>\n</function>\n</tool_call>"
    ),
    "glm": (
        "<think>why</think>\nhi\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
        "<arg_value>x;y</arg_value>\n</tool_call>"
    ),
    "llama3": '{"name": "add", "parameters": {"a": 1, "b": "x;y"}}',
    "pythonic": '[add(a=1, b="x;y")]',
    "mistral": '[THINK]why[/THINK]hi[TOOL_CALLS][{"name": "add", "arguments": {"a": 1, "b": "x;y"}}]',
    "deepseek": (
        "<think>\nwhy\n</think>\n\nhi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
        '```json\n{"a": 1, "b": "x;y"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "kimi": (
        "<think>why</think>hi<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
        '<|tool_call_argument_begin|>{"a": 1, "b": "x;y"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "lfm2": '<think>why</think>hi<|tool_call_start|>[add(a=1, b="x;y")]<|tool_call_end|>',
    "phi4": 'hi<|tool_call|>[{"name": "add", "arguments": {"a": 1, "b": "x;y"}}]<|/tool_call|>',
    "gemma": '<|channel>thought\nwhy\n<channel|>hi<|tool_call>call:add{a:1,b:<|"|>x;y<|"|>}<tool_call|>',
    "cohere": (
        "<|START_THINKING|>why<|END_THINKING|><|START_RESPONSE|>hi<|END_RESPONSE|><|START_ACTION|>"
        '[{"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1, "b": "x;y"}}]<|END_ACTION|>'
    ),
    "harmony": (
        "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary<|message|>hi<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
        '{"a": 1, "b": "x;y"}<|call|>'
    ),
    "think": "<think>\nwhy\n</think>\n\nhi",
    "plain": "hi",
}
MARKERS = sorted({m for f in FORMATS.values() for s in (*f.calls, *f.reasoning) for m in (s.open, *s.close)})
HARMONY = ["<|start|>assistant", "<|channel|>analysis", "<|channel|>final", "<|message|>", "<|end|>", " to=functions.f"]
pieces = st.one_of(
    st.sampled_from([*MARKERS, *HARMONY, *ANSWERS.values(), "\n", "\n\n", '{"name": "f", "arguments": {}}', "<", "ö"]),
    st.text("<|>\n {}[]tholc/_fa", max_size=6),
)
texts = st.lists(pieces, max_size=8).map("".join)


def streamed(name: str, cuts: list[str], **options: bool) -> Parsed:
    parser = parser_for(FORMATS[name], **options)
    return gather([event for cut in cuts for event in parser.feed(cut)] + parser.finish())


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.sampled_from(sorted(FORMATS)), texts, st.lists(st.integers(0, 500), max_size=12), st.booleans())
@example("hermes", 'x\n<tool_call>{"name": "f"', [3], False)
@example("llama3", ' \n{"name": "f"', [1, 2], False)
def test_a_stream_gives_what_the_whole_gives(name: str, text: str, places: list[int], thinking: bool):
    whole = parse(text, FORMATS[name], thinking=thinking)
    assert streamed(name, cut(text, places), thinking=thinking) == whole
    assert streamed(name, list(text), thinking=thinking) == whole


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_plain_text_stays_as_it_is(text: str):
    assert parse(text, FORMATS["plain"]).text == text


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_familys_own_form_is_read(name: str):
    found = parse(ANSWERS[name], FORMATS[name])
    has_call, has_reasoning = bool(FORMATS[name].calls) or name == "harmony", "why" in ANSWERS[name]
    assert found.reasoning == ("why" if has_reasoning else "")
    assert found.text == ("hi" if "hi" in ANSWERS[name].replace("think", "").replace("THINK", "") else "")
    if has_call:
        [call] = found.calls
        assert (call.name, json.loads(call.arguments)) == (CALL.name, json.loads(CALL.arguments))


def test_every_format_has_an_answer_here():
    assert set(ANSWERS) == set(FORMATS)


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - {"harmony"}))
def test_a_call_that_cannot_be_read_stays_text_as_it_was_written(name: str):
    for section in FORMATS[name].calls:
        text = f"hi\n\n{section.open}no <such> thing{''.join(section.close[:1])}\n"
        text = text[4:] if section.bare else text
        assert parse(text, FORMATS[name]).parts == (TextDelta(text),)


def test_arguments_are_the_models_own_text():
    text = '<tool_call>{"arguments":{ "b":1e3,"a" : "\\u00e9"},"name":"f"}</tool_call>'
    assert parse(text, FORMATS["hermes"]).calls == (Call("f", '{ "b":1e3,"a" : "\\u00e9"}'),)


def test_several_calls_in_one_answer():
    two = parse('{"name": "f", "parameters": {"a": ";"}};{"name": "g", "parameters": {}}', FORMATS["llama3"]).calls
    assert [call.name for call in two] == ["f", "g"]
    two = parse('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}', FORMATS["mistral"]).calls
    assert two == (Call("f", '{"a": 1}'), Call("g", "{}", "abc"))


def test_an_answer_cut_off_in_a_call_is_a_call_only_if_it_is_whole():
    whole, half = '<tool_call>\n{"name": "f", "arguments": {}}', '<tool_call>\n{"name": "f", "argu'
    assert parse(whole, FORMATS["hermes"]).calls == (Call("f", "{}"),)
    assert parse(half, FORMATS["hermes"]).parts == (TextDelta(half),)


def test_values_without_quotes_follow_the_tools_schema():
    text = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
    schema = {"f": {"properties": {"a": {"type": "string"}}}}
    assert parse(text, FORMATS["glm"], schemas=schema).calls == (Call("f", '{"a":"1"}'),)
    assert parse(text, FORMATS["glm"]).calls == (Call("f", '{"a":1}'),)


def test_a_thought_that_the_prompt_has_opened():
    assert FORMATS["think"].opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not FORMATS["think"].opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert parse("why\n</think>\n\nhi", FORMATS["think"], thinking=True).parts == (
        ReasoningDelta("why"),
        TextDelta("hi"),
    )
