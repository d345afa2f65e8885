"""The table of fields: every field of Argo's types stands in it once, and the documentation prints it."""

from __future__ import annotations

from pathlib import Path

from posttrain.engine import fields
from posttrain.engine.fields import CARRIED, IGNORED, REFUSED, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "engine.md"


def test_every_field_is_in_exactly_one_class() -> None:
    seen = [(one.model, one.name) for one in table()]
    assert len(seen) == len(set(seen))
    assert {one.state for one in table()} == {CARRIED, IGNORED, REFUSED}


def test_what_is_not_carried_says_why() -> None:
    assert [one for one in table() if one.state != CARRIED and not one.why] == []


def test_the_table_names_no_field_that_does_not_exist() -> None:
    names = {(one.model, one.name) for one in table()}
    anywhere = {one.name for one in table()}
    for listed in (fields._IGNORED, fields._REFUSED):
        for model, entries in listed.items():
            for name in entries:
                assert name in anywhere if model == "*" else (model, name) in names, f"{model}.{name}"
    assert {key for key in fields.VALUES} <= names


def test_the_documentation_has_the_table_as_it_is() -> None:
    assert fields.as_markdown() in DOCUMENT.read_text(encoding="utf-8"), (
        "write it anew: python -m posttrain.engine.fields docs/engine.md"
    )
