"""Tags: what is known is filled in once, what is not stays as it is written, and nothing else changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.templates import EVERYTHING, FlatScope, MissingVariable, substitute, substitute_text, tags
from tests.engine.laws.support import as_told, run_decided, workflow

NAMES = st.sampled_from(["inputs.parameters.a", "inputs.parameters.b", "workflow.name", "item"])
PLAIN = st.text(alphabet=st.characters(exclude_categories=["C", "Z"], exclude_characters="{}"), max_size=20)
ANY = st.text(alphabet=st.characters(exclude_categories=["C", "Z"]), max_size=30)
PIECES = st.lists(st.tuples(st.just("text"), PLAIN) | st.tuples(st.just("tag"), NAMES), max_size=8)


def text_of(pieces) -> str:
    return "".join(f"{{{{{one}}}}}" if kind == "tag" else one for kind, one in pieces)


@given(PIECES, st.dictionaries(NAMES, ANY))
def test_known_tags_are_filled_in_once_and_unknown_ones_stay(pieces, values) -> None:
    expected = "".join(values.get(one, f"{{{{{one}}}}}") if kind == "tag" else one for kind, one in pieces)
    assert substitute_text(text_of(pieces), FlatScope(values)) == expected


@given(PIECES, st.dictionaries(NAMES, ANY))
def test_a_pass_that_wants_everything_names_what_is_missing(pieces, values) -> None:
    missing = [one for kind, one in pieces if kind == "tag" and one not in values]
    if missing:
        with pytest.raises(MissingVariable, match=missing[0].replace(".", r"\.")):
            substitute_text(text_of(pieces), FlatScope(values), EVERYTHING)
    else:
        assert substitute_text(text_of(pieces), FlatScope(values), EVERYTHING) is not None


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | PLAIN, lambda x: st.lists(x) | st.dictionaries(PLAIN, x)
)


@given(TREES)
def test_what_has_no_tags_stays_as_it_is(tree) -> None:
    assert substitute(tree, FlatScope({"a": "b"})) == tree
    assert tags(tree) == []


HOSTILE = [
    "it's", 'say "x"', "a\nb", "a\tb", "back\\slash", "$(echo no)", "`echo no`", "${HOME}", "; rm -rf /nowhere", "{{",
    "}}", "{{item}}", "{{=1+1}}", "{{workflow.name}}", "ü😀漢", "%s", "--", "", " ", "null", "true", "1e3", "[1,",
    "\\n",
    "a" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_arrives_as_it_was_given(tmp_path, value) -> None:
    main = {
        "name": "main",
        "steps": [[{"name": "one", "template": "take", "arguments": {"parameters": [{"name": "v", "value": value}]}}]],
    }
    take = {
        "name": "take", "inputs": {"parameters": [{"name": "v"}]},
        "container": {"image": "i", "command": ["x"], "args": ["{{inputs.parameters.v}}"],
                      "env": [{"name": "V", "value": "{{inputs.parameters.v}}"}]},
    }  # fmt: skip
    seen = []

    def look(spec):
        seen.append((spec.main["args"][0], spec.main["env"][0]["value"]))
        return as_told(type(spec)(**{**vars(spec), "main": {**spec.main, "args": ["Succeeded"]}}))

    resolved = {"{{workflow.name}}": "w"}.get(value, value)  # a tag in a value is a tag
    resolved = {"{{=1+1}}": "2"}.get(resolved, resolved)
    nodes, _ = run_decided(tmp_path, workflow(main, take), look)
    if value == "{{item}}":
        return
    assert nodes["w"]["phase"] == "Succeeded", json.dumps(nodes, indent=1)
    assert seen == [(resolved, resolved)]
