"""Whatever an expression says, it has a value or an ExpressionError, and soon."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.engine.expressions import ExpressionError, decide, evaluate, nested, with_functions
from posttrain.engine.expressions.functions import BUILTINS
from posttrain.engine.expressions.sprig import SPRIG

VALUES = ["0", "1", "-1", "2.5", "1e400", "9999999999999", "''", "'a,b'", "'1'", "'2024-01-02'", "nil", "true", "[]",
          "[1, 'a', nil]", "{}", "{'a': 1}", "x", "x.y", "#", "now()", "'('", "'{'"]  # fmt: skip
BINARY = ["+", "-", "*", "/", "%", "**", "==", "<", ">=", "in", "matches", "contains", "..", "&&", "||", "??", "and"]
LEAVES = st.sampled_from(VALUES)
CALLS = st.sampled_from(
    [*sorted(BUILTINS), *(f"sprig.{name}" for name in sorted(SPRIG)), "asInt", "jsonpath", "toJson"]
)


def larger(below):
    return (
        st.tuples(below, st.sampled_from(BINARY), below).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(CALLS, st.lists(below, max_size=3)).map(lambda t: f"{t[0]}({', '.join(t[1])})")
        | st.tuples(below, below).map(lambda t: f"{t[0]}[{t[1]}]")
        | st.tuples(below, below).map(lambda t: f"{t[0]}[{t[1]}:]")
        | st.tuples(below, st.sampled_from(["a", "Year()", "len()"])).map(lambda t: f"{t[0]}.{t[1]}")
        | st.tuples(st.sampled_from(["!", "-", "not "]), below).map("".join)
        | st.tuples(below, below, below).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})")
    )


@given(st.recursive(LEAVES, larger, max_leaves=6))
@settings(max_examples=400)
def test_an_expression_has_a_value_or_an_error(text: str) -> None:
    try:
        evaluate(text, with_functions(nested({"x.y": "text", "x.z": "1"})))
    except ExpressionError as error:
        assert str(error)


WORDS = st.sampled_from(
    ["1", "0", "99999999999999999999", "a", "'a'", "'2024-01-02'", "true", "(1, 2)", "x-y", "[a b]"]
)
SIGNS = st.sampled_from(
    ["==", "<", "=~", "in", "&&", "+", "%", "/", "**", "<<", ">>", "|", "~", "!", "?", ":", ",", "(", ")"]
)


@given(st.lists(WORDS | SIGNS, max_size=8).map(" ".join))
@settings(max_examples=300)
def test_a_condition_is_decided_or_an_error(text: str) -> None:
    try:
        assert decide(text) in (True, False)
    except ExpressionError as error:
        assert str(error)
