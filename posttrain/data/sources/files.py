"""JSONL, Parquet and CSV files. A bad line is one rejected row; a file that is no such file is an error."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from posttrain.data.config import FORMATS, Source
from posttrain.data.paths import find
from posttrain.data.schema import Raw, Rejected
from posttrain.data.sources.columns import check_columns, to_raw
from posttrain.errors import UserError

csv.field_size_limit(64 << 20)


def read(source: Source, index: int, where: str, workspace: Path) -> Iterator[Raw | Rejected]:
    for file in find(source.path, workspace, field=f"{where}.path"):
        kind = source.format or file.suffix.removeprefix(".").lower().replace("ndjson", "jsonl")
        if kind not in FORMATS:
            raise UserError("says no format by its name", field=f"{where}.path", value=str(file),
                            remedy=f"set {where}.format to one of {', '.join(FORMATS)}")  # fmt: skip
        readers = {"jsonl": _jsonl, "parquet": _parquet, "csv": _csv}
        known: set[str] = set()
        records = 0
        for place, record in readers[kind](file, index, f"{where}.path"):
            if isinstance(record, Rejected):
                yield record
                continue
            if not set(record) <= known:
                known |= set(record)
                if kind != "jsonl":
                    check_columns(source, where, known)
            records += 1
            yield to_raw(source, index, where, f"{file.name}:{place}", record)
        if records:
            check_columns(source, where, known)


Records = Iterator[tuple[int, dict[str, Any] | Rejected]]


def _jsonl(file: Path, index: int, field: str) -> Records:
    with open(file, "rb") as lines:
        for number, raw in enumerate(lines, 1):
            if not raw.strip():
                continue
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as problem:
                yield number, _rejected(index, file, number, "not_utf8", str(problem), repr(raw))
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as problem:
                yield number, _rejected(index, file, number, "malformed_json", str(problem), line)
                continue
            if isinstance(record, dict):
                yield number, record
            else:
                detail = f"holds a {type(record).__name__}, no object"
                yield number, _rejected(index, file, number, "malformed_json", detail, line)


def _csv(file: Path, index: int, field: str) -> Records:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(f"is no UTF-8: {problem.reason}", field=field, value=str(file),
                        remedy="convert it to UTF-8") from None  # fmt: skip
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = next(rows, [])
    while True:
        try:
            row = next(rows, None)
        except csv.Error as problem:
            yield rows.line_num, _rejected(index, file, rows.line_num, "malformed_csv", str(problem), "")
            return
        if row is None:
            return
        if len(row) == len(header):
            yield rows.line_num, dict(zip(header, row, strict=True))
        elif row:
            detail = f"{len(row)} fields where the header has {len(header)}"
            yield rows.line_num, _rejected(index, file, rows.line_num, "malformed_csv", detail, ",".join(row))


def _parquet(file: Path, index: int, field: str) -> Records:
    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches():
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (pa.ArrowInvalid, OSError) as problem:
        what = str(problem).strip().splitlines()[0]
        raise UserError(f"cannot be read as Parquet: {what}", field=field, value=str(file)) from None


def _rejected(index: int, file: Path, number: int, reason: str, detail: str, content: str) -> Rejected:
    return Rejected(index, f"{file.name}:{number}", reason, detail, content.rstrip("\n"))
