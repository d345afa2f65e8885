"""What a forced call lets a model write is a call that the parser reads, with arguments that the schema allows."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import jsonschema
import pytest
import xgrammar
from xgrammar.testing import _get_masked_tokens_from_bitmask

from posttrain.llmm.tokens.parsers import FORMATS, Call, forced, parse

FORCED = sorted(name for name, format in FORMATS.items() if format.forced is not None)
CLOSING = ["</s>", '"', "}", "]", ")", '<|"|>', "</parameter>", "</arg_value>"]
VOCABULARY = [*CLOSING, *sorted(set(string.printable) - set(CLOSING)), "True", "null", "<tool_call|>", "</tool_call>"]
SCHEMAS: dict[str, Any] = {
    "nothing": {},
    "scalars": {
        "type": "object",
        "properties": {
            "i": {"type": "integer"}, "s": {"type": "string"}, "n": {"type": "number"}, "b": {"type": "boolean"},
        },
        "required": ["s", "i"],
    },
    "optional": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "boolean"}}},
    "nested": {
        "type": "object",
        "properties": {
            "o": {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]},
            "l": {"type": "array", "items": {"type": "boolean"}},
            "e": {"type": "string", "enum": ["one", "two words"]},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["o", "l", "e", "c"],
    },
}  # fmt: skip


def tag_of(name: str, offered: dict[str, Any], *, several: bool) -> str:
    form = FORMATS[name].forced
    assert form is not None
    return json.dumps({"type": "structural_tag", "format": forced.calls(form, offered, several=several)})


def written(tag: str, seed: int) -> str:
    """A text that the tag allows, drawn a token at a time; the likelier to close what is open, the longer it is."""
    draw = random.Random(seed)
    tokenizer = xgrammar.TokenizerInfo(VOCABULARY, stop_token_ids=[VOCABULARY.index("</s>")])
    compiled = xgrammar.GrammarCompiler(tokenizer).compile_grammar(xgrammar.Grammar.from_structural_tag(tag))
    matcher = xgrammar.GrammarMatcher(compiled)
    mask, text = xgrammar.allocate_token_bitmask(1, len(VOCABULARY)), ""
    while not matcher.is_terminated():
        if ahead := matcher.find_jump_forward_string():
            assert matcher.accept_string(ahead)
            text += ahead
            continue
        matcher.fill_next_token_bitmask(mask)
        refused = set(_get_masked_tokens_from_bitmask(mask, len(VOCABULARY)))
        allowed = [token for n, token in enumerate(VOCABULARY) if n not in refused]
        assert allowed, text
        closing = [token for token in allowed if token in CLOSING]
        token = draw.choice(closing if closing and draw.random() < len(text) / 200 else allowed)
        assert matcher.accept_token(VOCABULARY.index(token))
        text += "" if token == "</s>" else token
    return text


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
@pytest.mark.parametrize("name", FORCED)
def test_whatever_a_forced_call_lets_a_model_write_is_read_as_one(name: str, kind: str) -> None:
    schema = SCHEMAS[kind]
    for several in (False, True):
        tag = tag_of(name, {"add": schema, "sub": schema}, several=several)
        for seed in range(6):
            text = written(tag, seed)
            found = parse(text, FORMATS[name], schemas={"add": schema, "sub": schema})
            assert found.calls and not found.text.strip(), text
            assert several or len(found.calls) == 1
            for call in found.calls:
                assert call.name in ("add", "sub")
                jsonschema.validate(json.loads(call.arguments), schema)


@pytest.mark.parametrize("name", FORCED)
def test_a_call_as_the_family_writes_it_is_allowed(name: str) -> None:
    from tests.llmm.tokens.test_parsers import ANSWERS, CALL

    [call] = [part for part in parse(ANSWERS[name], FORMATS[name]).parts if isinstance(part, Call)]
    assert call.name == CALL.name
    form = FORMATS[name].forced
    assert form is not None
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    grammar = xgrammar.Grammar.from_structural_tag(tag_of(name, {"add": schema}, several=True))
    at = ANSWERS[name].index(form.open or form.begin % "add")
    assert xgrammar.testing._is_grammar_accept_string(grammar, ANSWERS[name][at:])


def test_a_parameter_that_cannot_be_spelled_is_refused() -> None:
    with pytest.raises(ValueError, match="'a-b' is no name"):
        forced.arguments({"type": "object", "properties": {"a-b": {}}}, FORMATS["lfm2"].forced)  # type: ignore[arg-type]
