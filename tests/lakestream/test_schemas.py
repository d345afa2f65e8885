"""The platform's streams: their schemas hold what is written, and the upgrade rule is kept."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from posttrain.contract.digest import digest_value
from posttrain.lakestream import EXPERIENCE, SCHEMAS, Stream, StreamError, StreamSchema
from tests.lakestream.stores import Store

V1 = StreamSchema("things", 1, pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())]))
V2 = StreamSchema("things", 2, pa.schema([*V1.arrow, ("seconds", pa.float32())]))
V3 = StreamSchema(
    "things", 3, pa.schema([*V2.arrow, pa.field("kind", pa.string(), nullable=False)]),
    {2: lambda rows: rows.append_column("kind", pa.array(["plain"] * rows.num_rows))},
)  # fmt: skip


def test_experience_comes_back_as_it_went_in(local: Store) -> None:
    stream = Stream.create(local.uri("experience"), EXPERIENCE)
    row = {
        "trajectory": "t-1", "task": "add", "group": "add/0", "messages": "[]", "tokens": [1, 2, 3, 4],
        "loss_mask": [0, 0, 1, 1], "logprobs": [0.0, 0.0, -0.5, -0.25],
        "policy_versions": [{"version": 7, "start": 2, "end": 3}, {"version": 8, "start": 3, "end": 4}],
        "reward": 1.0, "status": "finished", "seconds": 0.5,
        "started": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "group_rows": 2, "ended": None,
    }  # fmt: skip
    stream.producer("sampler-0").append(
        [row, row | {"trajectory": "t-2", "logprobs": None, "policy_versions": None}], 1
    )
    stream.maintain()
    first, second = stream.snapshot().to_table().to_pylist()
    assert first == row and second["policy_versions"] is None
    with pytest.raises(StreamError, match=r"row 0, column 'tokens'.*list<.*int32"):
        stream.producer("sampler-0").append([row | {"tokens": ["x"]}], 2)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_each_schema_makes_a_stream_that_knows_it(local: Store, name: str) -> None:
    stream = Stream.create(local.uri(name), SCHEMAS[name])
    assert Stream.open(stream.uri, schema=SCHEMAS[name]).describe().schema == f"{name} version {SCHEMAS[name].version}"
    other = next(schema for key, schema in SCHEMAS.items() if key != name)
    with pytest.raises(StreamError, match=f"holds {name} version {SCHEMAS[name].version}, not {other.name}"):
        Stream.open(stream.uri, schema=other)


PUBLISHED = {  # what streams out there were made with: a change is a new version, and an entry more
    ("tasks", 1): "ce0fdaa9b1a7b097", ("experience", 1): "6a602b0b9871e5e1", ("verdicts", 1): "b662bc819b676012",
    ("timings", 1): "fe6c0a9f7d29644a", ("evaluations", 1): "79018676b8dfd04e",
    ("experience", 2): "8f1e3351ae129db5", ("progress", 1): "3924a4c2dd417846",
}  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=lambda schema: schema.name)
def test_a_published_version_never_changes(schema: StreamSchema) -> None:
    columns = [[column.name, str(column.type), column.nullable] for column in schema.arrow]
    assert digest_value(columns).startswith(f"sha256:{PUBLISHED[schema.name, schema.version]}")


def test_rows_of_an_older_version_are_upgraded_as_they_are_read(local: Store) -> None:
    old = Stream.create(local.uri("things"), V1)
    old.producer("a").append([{"id": 1, "note": "x"}], 1)
    for wanted, expected in (
        (V1, {"id": 1, "note": "x"}),
        (V2, {"id": 1, "note": "x", "seconds": None}),
        (V3, {"id": 1, "note": "x", "seconds": None, "kind": "plain"}),
    ):
        stream = Stream.open(old.uri, schema=wanted)
        assert stream.consumer(group=None).poll().to_pylist() == [expected]
        assert stream.snapshot().to_table().schema == wanted.arrow
        assert stream.snapshot().take([0]).to_pylist() == [expected]


def test_a_newer_stream_is_refused_by_an_older_reader(local: Store) -> None:
    newer = Stream.create(local.uri("things"), V2)
    with pytest.raises(StreamError, match=r"holds things version 2, not things up to version 1"):
        Stream.open(newer.uri, schema=V1)


def test_a_version_that_needs_a_column_must_say_how_it_is_filled() -> None:
    forgetful = StreamSchema("things", 3, V3.arrow)
    with pytest.raises(StreamError, match=r"^kind: version 1 lacks it"):
        forgetful.upgrade(pa.table({"id": [1], "note": ["x"]}), 1)
