"""The lake side of a stream: its rows as a data set that stays as it is, for training and evaluation.

A snapshot is all rows with ids below its `end`. Row ids survive compaction and versions do not, so a snapshot
is named by its end, `URI@END#DIGEST`, needs no tag, and stays readable for as long as retention keeps its rows.
Rows are in the order of their ids; position i is the same row for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from posttrain.contract.ref import Ref
from posttrain.lake import table_digest
from posttrain.lakestream.commit import Patience, read_controls
from posttrain.lakestream.controls import COLUMN
from posttrain.lakestream.errors import StreamError
from posttrain.lakestream.offsets import end_of
from posttrain.lakestream.table import Table, Unanswered, answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from posttrain.lakestream.stream import Stream

T = TypeVar("T")


class Snapshot:
    """Made by `Stream.snapshot`. Not for use from two threads at once; open another in each worker."""

    def __init__(self, stream: Stream, table: Table, end: int):
        self._stream, self._table, self.end = stream, table, end
        self._index: _Index | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._reader().schema

    @property
    def rows(self) -> int:
        return len(self._located().ids)

    def __len__(self) -> int:
        return self.rows

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: str | None = None, batch_size: int = 8192
    ) -> Iterator[pa.RecordBatch]:
        """The rows in order. A batch may be shorter, never longer, than `batch_size`."""
        for rows in self._reader(columns, filter, batch_size):
            yield from rows.to_batches(max_chunksize=batch_size)

    def to_table(self, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.Table:
        reader = self._reader(columns, filter)
        return pa.concat_tables([reader.schema.empty_table(), *reader])

    def take(self, positions: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows at `positions` (0 is the first row), in that order; reads no others. IndexError beyond the end."""
        wanted = np.asarray(positions, np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= self.rows):
            raise IndexError(f"positions reach from {wanted.min()} to {wanted.max()}, there are {self.rows} rows")
        reader = self._reader(columns)
        return reader.finish(self._steadily(lambda: self._take(wanted, list(reader.reading.columns))))

    def offset(self, position: int) -> int:
        """The row id of the row at `position`: the offset of a consumer that begins there."""
        return int(self._located().ids[position])

    def search(self, query: str, *, column: str, limit: int = 10, columns: Sequence[str] | None = None) -> pa.Table:
        """The `limit` rows that match `query` best, with `_score` (BM25). `Stream.index` makes it fast."""
        reader = self._reader(columns)

        def find() -> pa.Table:
            with answers(self._table.uri):
                return self._table.dataset.to_table(
                    columns=[*reader.reading.columns, "_score"], filter=f"_rowid < {self.end}", prefilter=True,
                    full_text_query={"columns": [column], "query": query}, limit=limit,
                )  # fmt: skip

        return self._steadily(find)

    def sql(self, query: str) -> Any:
        """DuckDB's relation for `query` over the table `rows`; columns and filters are pushed down to Lance."""
        import duckdb

        connection = duckdb.connect()
        if self.end >= end_of(self._table.spans()):
            connection.register("stored", self._table.dataset)
            connection.sql(f"CREATE VIEW rows AS SELECT * EXCLUDE ({COLUMN}) FROM stored WHERE {COLUMN} IS NULL")
        else:  # DuckDB does not see row ids
            connection.register("rows", self.to_table())
        return connection.sql(query)

    def digest(self) -> str:
        """Digest of the rows in their order: the same after compaction, in a copy, and in a prepared table."""
        return table_digest(_Rows(self))

    def ref(self, uri: str | None = None) -> Ref:
        """The snapshot's name: the URI (or what stands for it in a workspace), its end, its digest."""
        return Ref(uri or self._table.uri, self.end, self.digest())

    def check(self, ref: Ref) -> None:
        """Raise StreamError unless these rows are the ones that `ref` names."""
        if ref.digest is not None and (found := self.digest()) != ref.digest:
            raise StreamError(f"holds other rows ({found})", field=str(ref.uri), value=ref.digest)

    def _reader(self, columns: Sequence[str] | None = None, filter: str | None = None, size: int = 8192):
        return self._stream.consumer(group=None, columns=columns, filter=filter, max_rows=size, stop=self.end)

    def _take(self, wanted: np.ndarray, columns: list[str]) -> pa.Table:
        places, back = np.unique(self._located().place(wanted), return_inverse=True)
        fragments, offsets = self._located().split(places)
        parts = [self._table.dataset.schema.empty_table().select(columns)]
        with answers(self._table.uri):
            for fragment in np.unique(fragments):
                local = offsets[fragments == fragment].tolist()  # Lance wants them ascending
                parts.append(self._table.fragment(int(fragment)).take(local, columns=columns))
        return pa.concat_tables(parts).take(pa.array(back))

    def _located(self) -> _Index:
        if self._index is None:
            self._index = self._steadily(lambda: _Index(self._table, self.end))
        return self._index

    def _steadily(self, read: Callable[[], T]) -> T:
        """`read`, again at the newest version where files were cleaned up under this one."""
        patience = Patience(self._stream.timeout, self._table.uri)
        while True:
            try:
                return read()
            except Unanswered as problem:
                patience.pause(problem)
                read_controls(self._table, patience)
                self._index = None


class _Index:
    """Where each position's row lies: fragment and offset in it."""

    def __init__(self, table: Table, end: int):
        spans = [span for span in table.spans() if span.first < end]
        parts = [table.stored_ids(span) for span in spans]
        ids = np.concatenate(parts) if parts else np.empty(0, np.uint64)
        lengths = [len(part) for part in parts]
        kept = np.flatnonzero(ids < end)
        order = kept[np.argsort(ids[kept], kind="stable")]
        self.ids = ids[order]
        self._order = order
        self._starts = np.cumsum([0, *lengths])
        self._fragments = np.array([span.fragment for span in spans], np.int64)

    def place(self, positions: np.ndarray) -> np.ndarray:
        """The places of the rows at `positions`: counted over all fragments, one after the other."""
        return self._order[positions]

    def split(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The fragment of each place, and its place within."""
        which = np.searchsorted(self._starts, places, side="right") - 1
        return self._fragments[which], places - self._starts[which]


class _Rows:
    """A snapshot in the shape that `table_digest` reads."""

    def __init__(self, snapshot: Snapshot):
        self.schema, self.to_batches = snapshot.schema, snapshot.to_batches
