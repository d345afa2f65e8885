"""Laws of the lake's tables: the digest is of the content, versions are kept, damage is noticed."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import signal
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.contract import Ref
from posttrain.errors import UserError
from posttrain.lake import open_table, table_digest, write_table

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("score", pa.float64()),
        ("right", pa.bool_()),
        ("span", pa.struct([("start", pa.int64()), ("label", pa.string())])),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=5),
        "tokens": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "score": st.none()
        | st.floats(allow_nan=False, width=32).map(lambda x: x + 0.0),  # no -0.0, which Python calls equal to 0.0
        "right": st.none() | st.booleans(),
        "span": st.none()
        | st.fixed_dictionaries({"start": st.integers(0, 9), "label": st.none() | st.text(max_size=2)}),
    }
)


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@given(rows=st.lists(ROW, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_digest_does_not_depend_on_how_rows_are_batched(rows, cuts):
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    whole = table(rows)
    pieces = [whole.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    assert table_digest(pa.concat_tables([whole.slice(0, 0), *pieces])) == table_digest(whole)


@given(left=st.lists(ROW, max_size=4), right=st.lists(ROW, max_size=4))
def test_digests_are_equal_exactly_where_rows_are(left, right):
    assert (table_digest(table(left)) == table_digest(table(right))) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": ["ab", "c"]}, {"a": ["a", "bc"]}),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}),
        ({"a": ["x"]}, {"b": ["x"]}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": [None]}, {"a": [""]}),
        ({"a": [[1], [2]]}, {"a": [[1, 2], []]}),
    ],
)
def test_content_that_differs_has_another_digest(left, right):
    assert table_digest(pa.table(left)) != table_digest(pa.table(right))


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30), size=st.integers(1, 7))
def test_digest_does_not_depend_on_fragments_or_versions(tmp_path_factory, rows, size):
    root = tmp_path_factory.mktemp("lake")
    lance.write_dataset(table(rows[:1]), root / "a", data_storage_version="2.2")
    lance.write_dataset(table(rows[1:]), root / "a", mode="append", max_rows_per_file=size)
    grown = lance.dataset(root / "a")
    assert table_digest(grown) == table_digest(table(rows))
    grown.optimize.compact_files()
    assert table_digest(lance.dataset(root / "a")) == table_digest(table(rows))


def test_same_content_keeps_its_version_and_other_content_gets_one(tmp_path):
    one, two = pa.table({"a": ["x"]}), pa.table({"a": ["y"]})
    first = write_table(tmp_path, "lake/t.lance", one)
    assert (first.version, first.digest) == (1, table_digest(one))
    assert write_table(tmp_path, "lake/t.lance", one) == first
    second = write_table(tmp_path, "lake/t.lance", two)
    assert second.version == 2
    assert write_table(tmp_path, "lake/t.lance", one) == first, "an older version with the content is named again"
    assert open_table(tmp_path, first, field="x").to_table()["a"].to_pylist() == ["x"]
    assert open_table(tmp_path, str(second), field="x", verify=True).to_table()["a"].to_pylist() == ["y"]


def test_what_is_not_there_is_one_clear_line(tmp_path):
    ref = write_table(tmp_path, "lake/t.lance", pa.table({"a": ["x"]}))
    with pytest.raises(UserError, match=r"sft\.train: no such table"):
        open_table(tmp_path, "lake/none.lance", field="sft.train")
    with pytest.raises(UserError, match="no such version"):
        open_table(tmp_path, Ref(ref.uri, 7), field="sft.train")
    with pytest.raises(UserError, match="holds other content"):
        open_table(tmp_path, Ref(ref.uri, 1, "sha256:" + "0" * 64), field="sft.train")


def test_damage_is_noticed_and_a_write_repairs_it(tmp_path):
    rows = pa.table({"a": ["x" * 50, "y" * 50]})
    ref = write_table(tmp_path, "lake/t.lance", rows)
    for file in (tmp_path / "lake/t.lance/data").iterdir():
        file.write_bytes(file.read_bytes().replace(b"xxxx", b"xxxz"))
    with pytest.raises(UserError, match="is damaged"):
        open_table(tmp_path, ref, field="sft.train", verify=True)
    again = write_table(tmp_path, "lake/t.lance", rows)
    assert (again.version, again.digest) == (2, ref.digest)
    open_table(tmp_path, again, field="sft.train", verify=True)


def _write_with_little_room(root: Path, answer) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        write_table(root, "lake/t.lance", pa.table({"a": [f"{n:032x}" * 8 for n in range(3000)]}))
    except OSError as problem:
        answer.put(problem.errno)


@pytest.mark.parametrize("before", [False, True])
def test_a_write_that_fails_leaves_the_table_as_it_was(tmp_path, before):
    ref = write_table(tmp_path, "lake/t.lance", pa.table({"a": ["old"]})) if before else None
    spawn = multiprocessing.get_context("spawn")
    answer = spawn.Queue()
    child = spawn.Process(target=_write_with_little_room, args=(tmp_path, answer))
    child.start()
    assert answer.get(timeout=60) == 27  # EFBIG, as the errno and not as a library's text
    child.join()
    if ref is None:
        assert list((tmp_path / "lake").iterdir()) == []
    else:
        assert open_table(tmp_path, Ref(ref.uri), field="x").to_table()["a"].to_pylist() == ["old"]


def _write_many(root: Path, name: str, count: int) -> None:
    for n in range(count):
        write_table(root, "lake/t.lance", pa.table({"a": [f"{name}{n}"]}))


def test_writers_that_race_each_get_a_version_that_stays(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=_write_many, args=(tmp_path, name, 5)) for name in "pq"]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    seen = {
        open_table(tmp_path, Ref("lake/t.lance", entry["version"]), field="x").to_table()["a"][0].as_py()
        for entry in lance.dataset(tmp_path / "lake/t.lance").version_refs()
    }
    assert seen == {f"{name}{n}" for name in "pq" for n in range(5)}
