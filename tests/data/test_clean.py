"""Cleaning repairs what it can and says why it rejects the rest."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.clean import clean, tidy
from posttrain.data.config import Limits
from posttrain.data.schema import Raw, Rejected, conversation_problem

GOOD = Raw(source=0, place="a:1", question="What is 1 + 1?", answer="2", verifier="numeric")


@given(st.text())
def test_tidying_is_idempotent_and_leaves_no_control_character(text):
    neat = tidy(text)
    assert tidy(neat) == neat
    assert unicodedata.is_normalized("NFC", neat)
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in neat)


def test_text_without_faults_is_left_alone():
    assert clean(GOOD, Limits()) == GOOD
    assert tidy("नमस्ते 👩‍👩‍👧 a\tb\nc") == "नमस्ते 👩‍👩‍👧 a\tb\nc", "joiners belong to the text"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": " \x00 "}, "empty"),
        ({"answer": "\ufeff"}, "empty"),
        ({"question": "caf\ufffd"}, "undecodable"),
        ({"question": "x" * 101}, "too_long"),
        ({"tier": "impossible"}, "bad_tier"),
        ({"messages": ({"role": "user", "content": " "},)}, "empty"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason_and_content(change, reason):
    bad = clean(replace(GOOD, **change), Limits(characters=100))
    assert isinstance(bad, Rejected)
    assert (bad.reason, bad.place) == (reason, "a:1")
    assert '"question"' in bad.content


@pytest.mark.parametrize(
    ("roles", "fine"),
    [
        ("u", True), ("ua", True), ("sua", True), ("suau", True),
        ("", False), ("s", False), ("a", False), ("uu", False), ("us", False), ("sau", False), ("uax", False),
    ],
)  # fmt: skip
def test_roles_alternate_after_an_optional_system_message(roles, fine):
    names = {"s": "system", "u": "user", "a": "assistant", "x": "tool"}
    problem = conversation_problem([{"role": names[r], "content": "text"} for r in roles])
    assert (problem is None) == fine
