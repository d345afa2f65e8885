"""The lake side: the same rows, at the same positions, with the same digest, whatever maintenance does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from posttrain.lake import table_digest
from posttrain.lakestream import Policy, Stream, StreamError
from tests.lakestream.worker import rows


@pytest.fixture
def filled(stream: Stream) -> Stream:
    producers = [stream.producer("a"), stream.producer("b")]
    for i in range(6):
        for producer in producers:
            producer.append(rows(producer.name, i * 3, 3), i + 1)
    return stream


def seen(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table["producer"].to_pylist(), table["seq"].to_pylist(), strict=True))


def test_rows_keep_their_positions(filled: Stream) -> None:
    before = filled.snapshot()
    table = before.to_table()
    assert len(before) == table.num_rows == 36
    filled.maintain(Policy(keep_versions=0))
    filled.producer("a").append(rows("a", 18, 3), 7)
    filled.maintain(Policy(keep_versions=0))
    after = filled.snapshot(before.end)
    choice = np.random.default_rng(0).integers(0, 36, 50)
    for snapshot in (before, after):
        assert snapshot.to_table().equals(table)
        assert snapshot.take(choice).equals(table.take(pa.array(choice)))
        assert snapshot.take([]).schema == table.schema
    assert filled.snapshot().rows == 39
    with pytest.raises(IndexError, match=r"there are 36 rows"):
        after.take([36])


def test_batches_filters_and_columns(filled: Stream) -> None:
    snapshot = filled.snapshot()
    batches = list(snapshot.to_batches(columns=["seq"], filter="producer = 'b'", batch_size=5))
    assert [seq for batch in batches for seq in batch["seq"].to_pylist()] == list(range(18))
    assert max(batch.num_rows for batch in batches) <= 5 and batches[0].schema.names == ["seq"]
    assert snapshot.to_table(filter="seq > 100").num_rows == 0


def test_a_digest_names_the_rows(filled: Stream) -> None:
    snapshot = filled.snapshot()
    named = snapshot.ref("lake/stream.lance")
    assert str(named).startswith(f"lake/stream.lance@{snapshot.end}#sha256:")
    assert named.digest == table_digest(snapshot.to_table()), "the same as of a prepared table"
    filled.producer("a").append(rows("a", 18, 1), 7)
    filled.maintain(Policy(keep_versions=0))
    filled.snapshot(named.version).check(named)
    with pytest.raises(StreamError, match=r"holds other rows"):
        filled.snapshot().check(named)
    with pytest.raises(StreamError, match=r"^end: is not within"):
        filled.snapshot(10_000)


def test_duckdb_sees_rows_and_no_controls(filled: Stream) -> None:
    early = filled.snapshot()
    filled.producer("a").append(rows("a", 18, 2), 7)
    query = "SELECT producer, count(*), max(seq) FROM rows GROUP BY producer ORDER BY producer"
    assert filled.snapshot().sql(query).fetchall() == [("a", 20, 19), ("b", 18, 17)]
    assert filled.snapshot(early.end).sql(query).fetchall() == [("a", 18, 17), ("b", 18, 17)]
    assert filled.snapshot().sql("SELECT * FROM rows LIMIT 1").columns == ["producer", "seq", "text"]


def test_full_text_search_finds_old_rows_and_new_ones(filled: Stream) -> None:
    filled.index("text")
    filled.producer("a").append([{"producer": "a", "seq": 18, "text": "a needle in hay"}], 7)
    for _ in range(2):  # before the index has the new row, and after
        found = filled.snapshot().search("needle", column="text", columns=["seq"])
        assert found["seq"].to_pylist() == [18] and found["_score"][0].as_py() > 0
        assert filled.maintain(Policy(keep_versions=0)).skipped == [], "what the index covers and what not, apart"
    earlier = filled.snapshot().end - 1
    assert filled.snapshot(earlier).search("needle", column="text").num_rows == 0
    assert sorted(filled.snapshot().search("17", column="text")["producer"].to_pylist()) == ["a", "b"]
    with pytest.raises(StreamError, match=r"no text column"):
        filled.index("seq")
    filled.producer("b").append(rows("b", 18, 1), 7)  # appends go on over an index
    assert filled.verify({"producer": "producer", "sequence": "seq"}) == []
