"""`posttrain stream …`: what a person can do with a stream, and what a mistake looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from posttrain.cli import app
from posttrain.errors import UserError
from posttrain.lakestream import SCHEMAS, Stream
from tests.lakestream.stores import Store
from tests.lakestream.worker import rows

NEITHER = "goes with the other; give both or neither"


def command(*arguments: object, typed: str | None = None) -> str:
    """What `posttrain stream ARGUMENTS` prints. Raises what it raises."""
    done = CliRunner().invoke(app, ["stream", *map(str, arguments)], input=typed, catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output
    return done.output


@pytest.fixture
def uri(local: Store) -> str:
    made = command(
        "create", local.uri("s"), "--column", "producer:string!", "--column", "seq:int64!", "--column", "text:string"
    )
    assert made.endswith("s.lance: producer, seq, text\n")
    return local.uri("s")


def lines(first: int, count: int) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows("a", first, count).to_pylist())


def test_a_file_is_appended_once_however_often_it_is_tried(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(0, 5))
    assert command("append", uri, file) == "5 rows appended by 'rows.jsonl', cursor 5\n"
    file.write_text(lines(0, 5) + lines(5, 3))
    assert command("append", uri, file) == "3 rows appended by 'rows.jsonl', cursor 8\n"
    assert command("append", uri, file) == "0 rows appended by 'rows.jsonl', cursor 8\n"
    pyarrow.parquet.write_table(rows("b", 0, 6000), tmp_path / "b.parquet")
    assert (
        command("append", uri, tmp_path / "b.parquet", "--producer", "b") == "6000 rows appended by 'b', cursor 6000\n"
    )
    assert command("append", uri, "-", typed=lines(8, 1)) == "1 rows appended by 'stdin', cursor 1\n"
    assert Stream.open(uri).snapshot().rows == 6009


def test_tail_prints_the_last_rows_and_follows_to_the_barrier(uri: str) -> None:
    command("append", uri, "-", typed=lines(0, 20))
    shown = [json.loads(line) for line in command("tail", uri, "-n", 3).splitlines()]
    assert shown == rows("a", 17, 3).to_pylist()
    command("close", uri)
    shown = command("tail", uri, "--follow", "--rows", 5, "--columns", "seq", "--filter", "seq % 2 = 0").splitlines()
    assert shown == ['{"seq": 16}', '{"seq": 18}']
    assert command("tail", uri, "-n", 0) == ""


def test_describe_and_lag_show_everyone(uri: str) -> None:
    command("append", uri, "-", typed=lines(0, 4))
    stream = Stream.open(uri)
    consumer = stream.consumer(0, 2, group="train")
    consumer.poll()
    stream.acknowledge(consumer)
    shown = command("describe", uri)
    for part in ("open", "4 rows", "stdin", "train", "0 of 2", "append stdin rows=4 cursor=4", "maintained never"):
        assert part in shown, shown
    told = json.loads(command("describe", uri, "--json"))
    assert told["producers"][0]["cursor"] == 4 and len(told["consumers"]) == 2
    assert [each["rows"] for each in json.loads(command("lag", uri, "--json"))] == [0, 2]
    assert "1 of 2" in command("lag", uri)


def test_maintain_and_verify(uri: str) -> None:
    for i in range(5):
        command("append", uri, "-", typed=lines(i, 1))
    assert "5 fragments compacted to leave 1, 0 rows and" in command("maintain", uri, "--keep", 0)
    assert command("verify", uri) == "sound\n"
    wrong = command("verify", uri, "--producer", "producer", "--sequence", "seq")
    assert wrong == "there are rows of 'a', which is no producer of this stream\n" + (
        "producer 'stdin' committed 5 rows and 0 are stored\n"
    )


def test_each_schema_can_be_created_by_name(local: Store) -> None:
    assert "tokens" in command("create", local.uri("e"), "--schema", "experience", "--max-lag-rows", 1000)
    assert Stream.open(local.uri("e")).describe().settings.max_lag_rows == 1000


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["describe", "/nowhere"], "uri: there is no stream here (got '/nowhere'); create it first"),
        (["create", "/nowhere"], "--schema: give one of --schema and --column"),
        (["create", "/no", "--schema", "x"], "--schema: no such schema (got 'x'); known: " + ", ".join(SCHEMAS)),
        (["create", "/no", "--column", "x:y"], "--column: is no column (got 'x:y'); write NAME:TYPE, as in seq:int64"),
        (["create", "/no", "--column", ":y"], "--column: is no column (got ':y'); write NAME:TYPE, as in seq:int64"),
        (
            ["create", "/no", "--column", "a:int8", "--column", "a:int8"],
            "schema: every column needs a name of its own (got 'a')",
        ),
        (
            ["create", "/no", "--schema", "tasks", "--max-lag-rows", "-1"],
            "max_lag_rows: must not be negative (got -1); 0 means no bound",
        ),
        (["append", "/nowhere", "none.jsonl"], "FILE: no such file (got 'none.jsonl')"),
        (["lag", "/nowhere", "--option", "x"], "--option: is no option (got 'x'); write KEY=VALUE"),
        (["verify", "/nowhere", "--producer", "x"], "--producer, --sequence: " + NEITHER),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(arguments: list[str], line: str) -> None:
    with pytest.raises(UserError) as problem:
        command(*arguments)
    assert str(problem.value) == line


def test_a_file_that_is_not_what_it_says_is_one_line(uri: str, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no parquet")
    (tmp_path / "x.jsonl").write_bytes(lines(0, 1).encode() + b"\xff\n")
    (tmp_path / "long.jsonl").write_text(lines(0, 2600) + '{"producer": "a", "seq": "x"}\n')
    for name, line in (
        ("x.parquet", "FILE: is no Parquet file"),
        ("x.jsonl", "x.jsonl, line 2: is no JSON"),
        ("long.jsonl", "row 2600, column 'seq': is no int64 (got 'x')"),
    ):
        with pytest.raises(UserError) as problem:
            command("append", uri, tmp_path / name)
        assert line in str(problem.value)
    found = Stream.open(uri).describe()
    assert found.rows == 2500, "the batch before the bad row"
    assert [producer.name for producer in found.producers] == ["long.jsonl"], "none for a file that does not fit"


def test_a_stream_without_consumers_says_so(uri: str) -> None:
    assert command("lag", uri) == "no consumer has made itself known\n"
    assert command("lag", uri, "--json") == "[]\n"


def test_a_line_that_is_no_json_is_named_and_rows_before_it_stay(uri: str) -> None:
    with pytest.raises(UserError, match=r"^-, line 3: is no JSON$"):
        command("append", uri, "-", typed=lines(0, 2) + "{nonsense\n")
    assert Stream.open(uri).snapshot().rows == 0
