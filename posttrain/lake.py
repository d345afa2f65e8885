"""Tables of the lake: written whole, read at a pinned version, named by their content.

Invariants: a table's digest covers its column names, its types and its values in the order of
rows, and nothing else (not fragments, batches, versions or the layout of files); a table that is
written twice with the same content keeps its version; a reader never sees half of a write.

    ref = write_table(workspace, "lake/arithmetic/train.lance", table)    # …/train.lance@1#sha256:…
    rows = open_table(workspace, ref, field="sft.train").to_table()
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posttrain.contract.digest import digest_value
from posttrain.contract.files import beside, os_errors, sync_directory, sync_tree
from posttrain.contract.ref import Ref
from posttrain.errors import UserError

DIGEST = b"posttrain.digest"  # in the schema's metadata, so that it is committed with the rows
_FORMAT: Final = "2.2"


def write_table(workspace: Path, uri: str, table: pa.Table) -> Ref:
    """Store `table` under `uri` (relative to the workspace, or with a scheme) and name what is there now.

    A version that holds the same content, the current one or an older one, is named again instead of
    being written again; it is read first, so that a damaged one is not. Raises OSError (with errno
    ENOSPC on a full disk) with the table as it was.
    """
    where, digest = Ref(uri).locate(workspace), table_digest(table)
    marked = table.replace_schema_metadata((table.schema.metadata or {}) | {DIGEST: digest.encode()})
    while True:
        existing = _open(where)
        version = _version_of(existing, digest) if existing is not None else None
        if version is not None:
            return Ref(uri, version, digest)
        try:
            with os_errors(where):
                return Ref(uri, _commit(where, marked, first=existing is None), digest)
        except OSError as problem:
            if "commit conflict" not in str(problem):
                raise  # else another writer has put its version first, so that someone always gets on


def open_table(workspace: Path, ref: Ref | str, *, field: str, verify: bool = False) -> lance.LanceDataset:
    """The Lance data set that `ref` names, pinned to its version; `field` is named in an error.

    With `verify` every row is read and compared with the ref's digest. Raises UserError where the table
    or the version is not there, or where the content is another one.
    """
    parsed = Ref.parse(ref, field=field) if isinstance(ref, str) else ref
    found = _open(parsed.locate(workspace), parsed.version)
    if found is None:
        what = "no such table in the lake" if parsed.version is None else "no such table, or no such version of it"
        raise UserError(what, field=field, value=str(parsed), remedy=f"looked at {parsed.locate(workspace)}")
    stored = (found.schema.metadata or {}).get(DIGEST, b"").decode()
    if parsed.digest and stored and stored != parsed.digest:
        raise UserError(f"holds other content ({stored})", field=field, value=str(parsed))
    if verify and parsed.digest and _digest_or_none(found) != parsed.digest:
        raise UserError(
            "is damaged: its rows do not have its digest", field=field, value=str(parsed), remedy="write it again"
        )
    return found


def table_digest(source: pa.Table | lance.LanceDataset) -> str:
    """Digest of the rows of `source`, in their order; one pass, a batch at a time."""
    schema, rows = source.schema, 0
    streams = [_ColumnDigest(field.type) for field in schema]
    for batch in source.to_batches():
        rows += batch.num_rows
        for stream, column in zip(streams, batch.columns, strict=True):
            stream.update(column)
    columns = [[f.name, stream.hexdigests()] for f, stream in zip(schema, streams, strict=True)]
    return digest_value({"rows": rows, "columns": columns})


class _ColumnDigest:
    """Hashes of a column's parts (validity, lengths, values), each one stream over all batches."""

    def __init__(self, kind: pa.DataType):
        self._type = _plain_type(kind)
        self._parts: dict[str, hashlib._Hash] = {}

    def update(self, column: pa.Array) -> None:
        for name, data in _parts(column, ""):
            if name not in self._parts:
                self._parts[name] = hashlib.sha256()
            self._parts[name].update(data)

    def hexdigests(self) -> list[object]:
        return [self._type, {name: part.hexdigest() for name, part in self._parts.items()}]


def _parts(column: pa.Array, prefix: str) -> Iterator[tuple[str, memoryview]]:
    """The column as named byte strings whose concatenation over batches depends on nothing but values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        yield from _parts(column.dictionary_decode(), prefix)
        return
    yield f"{prefix}valid", _bytes(pc.is_valid(column).cast(pa.uint8()))
    if pa.types.is_null(kind):
        return
    if _is_text(kind):
        filled = column.cast(pa.large_binary()).fill_null(b"")
        _, offsets, data = filled.buffers()
        ends = np.frombuffer(offsets, np.int64)[filled.offset : filled.offset + len(filled) + 1]
        yield f"{prefix}lengths", np.diff(ends).data.cast("B")
        if data is not None and len(ends):
            yield f"{prefix}values", memoryview(data)[ends[0] : ends[-1]]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(column).fill_null(0).cast(pa.int64())
        yield f"{prefix}lengths", _bytes(lengths)
        yield from _parts(pc.list_flatten(column), prefix + "item.")
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _parts(pc.struct_field(column, index), f"{prefix}{kind.field(index).name}.")
    else:
        yield f"{prefix}values", _bytes(_fixed_width(column))


def _fixed_width(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(f"no digest is defined for a column of type {kind}")
    return column.fill_null(0)


def _bytes(column: pa.Array) -> memoryview:
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).data.cast("B")


def _plain_type(kind: pa.DataType) -> str:
    """The type's name, without the difference between 32 and 64 bit offsets or dictionary coding."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list<{_plain_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{f.name}: {_plain_type(f.type)}" for f in kind) + ">"
    return str(kind).removeprefix("large_")


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _open(where: str, version: int | None = None) -> lance.LanceDataset | None:
    """The data set, or None where there is none; Lance says both that and a missing version by ValueError."""
    try:
        return lance.dataset(where, version=version)
    except ValueError as problem:
        if "was not found" in str(problem):
            return None
        raise


def _version_of(dataset: lance.LanceDataset, digest: str) -> int | None:
    """The newest version whose rows have `digest`. Data sets have few versions; streams are not written here."""
    for entry in reversed(dataset.version_refs()):
        candidate = dataset.checkout_version(entry["version"])
        marked = (candidate.schema.metadata or {}).get(DIGEST)
        if marked == digest.encode() and _digest_or_none(candidate) == digest:
            return candidate.version
    return None


def _digest_or_none(dataset: lance.LanceDataset) -> str | None:
    """The digest of the rows as they are on disk; None where they cannot be read."""
    try:
        return table_digest(dataset)
    except (ValueError, OSError):
        return None


def _commit(where: str, table: pa.Table, *, first: bool) -> int:
    """Write `table` as the newest version and return its number.

    A local table's first version is written beside and renamed; of two that race the second adds a version.
    """
    if "://" in where or not first:
        version = lance.write_dataset(table, where, mode="overwrite", data_storage_version=_FORMAT).version
        if "://" not in where:
            sync_tree(Path(where))
        return version
    final = Path(where)
    with beside(final) as staging:
        lance.write_dataset(table, staging / "table", data_storage_version=_FORMAT)
        sync_tree(staging)
        try:
            os.rename(staging / "table", final)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return _commit(where, table, first=False)
    sync_directory(final.parent)
    return 1
