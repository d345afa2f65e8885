"""Digests: the same for the same content, another for any change, and of nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from posttrain.contract.digest import digest_tree, digest_value

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4), max_leaves=12
)


@given(st.dictionaries(st.text(), values))
def test_the_order_of_keys_does_not_count(value: dict[str, Any]) -> None:
    assert digest_value(dict(reversed(value.items()))) == digest_value(value)


@given(values, values)
def test_unlike_values_have_unlike_digests(one: Any, other: Any) -> None:
    assert (digest_value(one) == digest_value(other)) == (repr_of(one) == repr_of(other))


def repr_of(value: Any) -> Any:
    """A form that tells 1, 1.0 and True apart, as the digest does."""
    if isinstance(value, dict):
        return ("dict", sorted((key, repr_of(item)) for key, item in value.items()))
    return ("list", [repr_of(v) for v in value]) if isinstance(value, list) else (type(value).__name__, repr(value))


def make(root: Path, content: dict[str, bytes]) -> str:
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return digest_tree(root)


def test_a_trees_digest_covers_names_and_contents(tmp_path: Path) -> None:
    base = {"a": b"1", "inner/b": b"2"}
    digests = [
        make(tmp_path / str(number), content)
        for number, content in enumerate(
            [base, base | {"a": b"2"}, {"a": b"2", "inner/b": b"1"}, {"a": b"1", "b": b"2"}, base | {"c": b""}, {}]
        )
    ]
    assert len(set(digests)) == len(digests)


def test_a_trees_digest_covers_nothing_else(tmp_path: Path) -> None:
    first = make(tmp_path / "one", {"a": b"1", "inner/b": b"2"})
    (tmp_path / "two" / "inner" / "empty").mkdir(parents=True)
    second = make(tmp_path / "two", {"inner/b": b"2", "a": b"1", "log": b"noise"})
    os.utime(tmp_path / "two" / "a", (0, 0))
    (tmp_path / "two" / "a").chmod(0o600)
    assert first != second == digest_tree(tmp_path / "two")
    assert first == digest_tree(tmp_path / "two", ignore=frozenset({"log"}))


def test_a_name_that_is_no_text_is_digested(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")
    assert digest_tree(tmp_path).startswith("sha256:")
