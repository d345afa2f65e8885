"""Sources: every kind of file gives the same rows; bad rows and bad files are told apart."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posttrain.data.config import Columns, Source
from posttrain.data.schema import Raw, Rejected
from posttrain.data.sources import read
from posttrain.errors import UserError

RECORDS = [{"problem": "1 + 1", "solution": "2", "level": "easy", "topic": "sums"},
           {"problem": "2 + 2", "solution": "4", "level": "easy", "topic": "sums"}]  # fmt: skip
COLUMNS = Columns(question="problem", answer="solution", tier="level", metadata=["topic"])


def rows(source: Source, workspace: Path) -> list[Raw | Rejected]:
    return list(read(source, 0, workspace=workspace, seed=0))


def write(root: Path, kind: str) -> Source:
    columns, path = COLUMNS, f"rows.{kind}"
    if kind == "jsonl":
        (root / path).write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), root / path)
    elif kind == "csv":
        with open(root / path, "w", newline="") as out:
            writer = csv.DictWriter(out, list(RECORDS[0]))
            writer.writeheader()
            writer.writerows(RECORDS)
    else:
        datasets.DatasetDict(train=datasets.Dataset.from_list(RECORDS)).save_to_disk(root / "rows.hf_disk")
        return Source(kind="hf_disk", path="rows.hf_disk", split="train", columns=columns, verifier="numeric")
    return Source(kind="files", path=path, columns=columns, verifier="numeric")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv", "hf_disk"])
def test_every_kind_gives_the_same_rows(tmp_path, kind):
    found = rows(write(tmp_path, kind), tmp_path)
    assert [(r.question, r.answer, r.tier, r.metadata, r.verifier) for r in found] == [
        ("1 + 1", "2", "easy", {"topic": "sums"}, "numeric"),
        ("2 + 2", "4", "easy", {"topic": "sums"}, "numeric"),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv", "hf_disk"])
def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path, kind):
    source = write(tmp_path, kind)
    source.columns = Columns(question="problem", answer="answr")
    with pytest.raises(UserError, match=r"sources\[0\].columns.answer: .*answr.*level, problem, solution, topic"):
        rows(source, tmp_path)


def test_a_bad_line_is_one_rejected_row_with_its_place(tmp_path):
    good = json.dumps(RECORDS[0])
    (tmp_path / "rows.jsonl").write_bytes(
        b"\n".join(
            [
                good.encode(), b'{"problem": "1', b'["no object"]', b'\xff\xfe', b"",
                json.dumps(RECORDS[0] | {"solution": None}).encode(),
                json.dumps(RECORDS[0] | {"problem": [1]}).encode(),
                b"[" * 100_000, good.encode(),
            ]
        )
    )  # fmt: skip
    found = rows(Source(kind="files", path="rows.jsonl", columns=COLUMNS), tmp_path)
    bad = [(r.place, r.reason) for r in found if isinstance(r, Rejected)]
    assert bad == [
        ("rows.jsonl:2", "malformed_json"), ("rows.jsonl:3", "malformed_json"), ("rows.jsonl:4", "not_utf8"),
        ("rows.jsonl:6", "missing_value"), ("rows.jsonl:7", "wrong_type"), ("rows.jsonl:8", "malformed_json"),
    ]  # fmt: skip
    assert len(found) - len(bad) == 2


def test_a_csv_row_with_another_number_of_fields_is_rejected(tmp_path):
    (tmp_path / "rows.csv").write_text('question,answer\n"1, 1",2\n1,2,3\n3\n"4\nlines",5\n')
    found = rows(Source(kind="files", path="rows.csv"), tmp_path)
    assert [(r.question, r.answer) for r in found if isinstance(r, Raw)] == [("1, 1", "2"), ("4\nlines", "5")]
    assert [(r.place, r.reason) for r in found if isinstance(r, Rejected)] == [
        ("rows.csv:3", "malformed_csv"),
        ("rows.csv:4", "malformed_csv"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.jsonl", None, r"path: no such file .*gone.jsonl"),
        ("empty.jsonl", b"", r"path: is an empty file"),
        ("rows.parquet", b"PAR1 but no more", r"path: cannot be read as Parquet"),
        ("rows.csv", b"question,answer\n\xff,1\n", r"path: is no UTF-8"),
        ("rows.data", b"1", r"path: says no format by its name .*sources\[0\].format"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        rows(Source(kind="files", path=name), tmp_path)


def test_a_directory_that_is_no_data_set_is_one_clear_line(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(UserError, match=r"sources\[0\].path: cannot be loaded"):
        rows(Source(kind="hf_disk", path="d"), tmp_path)


def test_a_missing_split_is_named_with_those_there(tmp_path):
    source = write(tmp_path, "hf_disk")
    source.split = "tain"
    with pytest.raises(UserError, match=r"sources\[0\].split: .*it has train"):
        rows(source, tmp_path)


def test_conversations_bring_their_own_answer(tmp_path):
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    lines = [{"chat": talk}, {"chat": json.dumps(talk), "answer": "Hey"}, {"chat": talk[::-1]}, {"chat": talk[:1]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = rows(Source(kind="files", path="*.jsonl", columns=Columns(messages="chat")), tmp_path)
    assert [r.answer for r in found if isinstance(r, Raw)] == ["Hello", "Hey"]
    assert [r.reason for r in found if isinstance(r, Rejected)] == ["bad_messages", "missing_value"]


def test_generated_problems_are_the_same_again_and_bear_their_template(tmp_path):
    source = Source(dataset="chain_sum", size=20, question="Sum: {expression}", parameters={"max_terms": 3})
    found = rows(source, tmp_path)
    assert found == rows(source, tmp_path)
    first = found[0]
    assert isinstance(first, Raw)
    assert first.question == f"Sum: {first.metadata['expression']}"
    assert eval(first.metadata["expression"]) == int(first.answer)
    assert first.metadata["question"].startswith("State the final answer"), "as the generator's scoring expects it"
    other = list(read(source, 1, workspace=tmp_path, seed=0))
    assert {r.question for r in found} != {r.question for r in other}, "each source has a seed of its own"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (Source(dataset="chain_sums"), r"dataset: .*did you mean chain_sum\?"),
        (Source(dataset="chain_sum", parameters={"terms": 2}), r"parameters.terms: .*known: .*max_terms"),
        (Source(dataset="chain_sum", parameters={"min_terms": 9, "max_terms": 2}), r"parameters: chain_sum refuses"),
        (Source(dataset="chain_sum", question="{expresion}"), r"question: {expresion} is not known.*{expression}"),
    ],
)  # fmt: skip
def test_a_generator_that_is_asked_wrongly_is_one_clear_line(tmp_path, source, says):
    with pytest.raises(UserError, match=says):
        rows(source, tmp_path)
