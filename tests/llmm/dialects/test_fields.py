"""A field of an SDK that has no row in the table fails here, until the table was made anew and read."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from tests.llmm.dialects.fields import PAGE, render, table
from tests.llmm.dialects.roots import EVENTS, REQUESTS, RESPONSES
from tests.llmm.dialects.sdk import examples


def test_the_table_is_what_the_dialects_do() -> None:
    written = PAGE.read_text()
    missing = [line for line in render().splitlines() if line not in written.splitlines()]
    assert not missing, "run `python -m tests.llmm.dialects.fields` and read what changed"
    assert written == render()


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_every_type_of_the_sdk_has_its_row(name: str) -> None:
    rows = {line.split("|")[1].strip(): line for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    for root in (REQUESTS[name], RESPONSES[name], *EVENTS[name]):
        for example in examples(root):
            assert re.search(rf"\b{re.escape(example.field)}\b", rows[example.type]), f"{example.type}.{example.field}"


def test_the_tables_sdks_are_the_ones_installed() -> None:
    page = PAGE.read_text()
    for package in ("openai", "anthropic", "google-genai"):
        assert f"`{package}` {version(package)}" in page


@pytest.mark.parametrize(
    ("name", "kind", "type_", "field", "expected"),
    [
        ("anthropic_messages", "request", "ThinkingBlockParam", "signature", "carried"),
        ("anthropic_messages", "request", "RedactedThinkingBlockParam", "data", "carried"),
        ("anthropic_messages", "request", "ToolResultBlockParam", "is_error", "carried"),
        ("anthropic_messages", "request", "ToolUseBlockParam", "cache_control", "residual"),
        ("openai_responses", "request", "ResponseReasoningItemParam", "encrypted_content", "carried"),
        ("google_genai", "request", "Part", "thoughtSignature", "carried"),
    ],
)
def test_what_others_lose_is_where_it_belongs(name: str, kind: str, type_: str, field: str, expected: str) -> None:
    assert table(name, kind)[type_][field] == expected
