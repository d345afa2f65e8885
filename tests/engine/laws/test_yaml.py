"""What is written of a manifest is read as the same, by this engine and by Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.engine.manifest.yaml import read_documents, write_documents
from workflows.manifest import to_yaml

LIKE_NUMBERS = st.from_regex(r"[-+]?[0-9._]{0,4}[eExob]?[-+]?[0-9_]{1,4}", fullmatch=True)
WORDS = st.sampled_from(["y", "N", "on", "No", "null", "~", "=", "<<", "true", "2020-01-01", "12:30:00", ".inf", "- a"])
TEXTS = st.one_of(LIKE_NUMBERS, WORDS, st.text())


@given(TEXTS)
@example("1e-5")
@example("0o17")
def test_a_text_stays_a_text(text: str) -> None:
    document = {"value": text, text: [text]}
    assert read_documents(write_documents([document, document])) == [document] * 2
    assert read_documents(to_yaml(document)) == [document]


@pytest.mark.parametrize("text", ["y", "N", "1e-5"])
def test_what_another_reader_takes_for_something_else_is_quoted(text: str) -> None:
    assert write_documents([{"value": text}]) == f"value: '{text}'\n" == to_yaml({"value": text})


@pytest.mark.parametrize(
    ("written", "read"),
    [("y", "y"), ("off", False), ("017", 15), ("1_000", 1000), ("12:30:00", "12:30:00"), ("0b11", 3)],
)
def test_what_a_bare_word_is_read_as(written: str, read: object) -> None:
    assert read_documents(f"value: {written}") == [{"value": read}]
