"""Rows as a caller has them, made into a table of the stream's schema, or refused by the row at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from posttrain.lakestream.errors import BadRow, StreamError

Rows: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]


def conform(rows: Rows, schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`. Columns that may be null may be left out.

    Raises StreamError that names the row (from 0) and column of the first value that does not fit.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        return _from_dicts(rows, schema)
    if unknown := [name for name in rows.column_names if name not in schema.names]:
        raise StreamError("is no column of the stream", field=unknown[0], remedy=f"it has {', '.join(schema.names)}")
    columns = [_column(rows, field) for field in schema]
    return pa.table(columns, schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        if not field.nullable:
            raise StreamError("is missing", field=field.name, remedy="every row needs it")
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    column = rows[field.name]
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            index = next((i for i, value in enumerate(column) if not _casts(value, field.type)), None)
            if index is None:
                raise StreamError(f"cannot become {field.type}: {problem}", field=field.name) from None
            raise BadRow(index, f"cannot become {field.type}", column=field.name, value=column[index].as_py()) from None
    if not field.nullable and column.null_count:
        raise BadRow(pc.index(pc.is_null(column), True).as_py(), "is null", column=field.name)
    return column


def _casts(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    known = set(schema.names)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadRow(index, "is no mapping of columns to values", value=row)
        if not row.keys() <= known:
            raise BadRow(
                index, f"the stream has {', '.join(schema.names)}", column=next(k for k in row if k not in known)
            )
    return pa.table([_values(rows, field) for field in schema], schema=schema)


def _values(rows: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    values = [row.get(field.name) for row in rows]
    if not field.nullable and None in values:
        raise BadRow(values.index(None), "is null or missing", column=field.name)
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for index, value in enumerate(values):
            if not _is_a(value, field.type):
                raise BadRow(index, f"is no {field.type}", column=field.name, value=value) from None
        raise


def _is_a(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
