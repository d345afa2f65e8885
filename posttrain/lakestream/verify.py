"""The invariants of a stored stream, checked on what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from posttrain.lakestream.changes import watermark
from posttrain.lakestream.controls import Controls
from posttrain.lakestream.errors import StreamError
from posttrain.lakestream.offsets import end_of
from posttrain.lakestream.table import Table


def verify(table: Table, controls: Controls, columns: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong, a line each; nothing for a sound stream.

    Checked: row ids are unique; the rows stored and removed are as many as the producers committed; watermarks
    and offsets lie within the stream; no version is tagged. `columns` names two columns of the rows,
    {"producer": …, "sequence": …}, which every producer filled with its name and with 0, 1, 2, …: then each
    producer's sequence must be complete and unique, and as long as its control says.
    """
    return [*_ids(table), *_totals(table, controls), *_watermarks(table, controls), *_tags(table)] + (
        list(_sequences(table, controls, columns)) if columns else []
    )


def _ids(table: Table) -> Iterator[str]:
    spans = table.spans()
    if not spans:
        return
    ids = np.concatenate([table.ids_of(span) for span in spans])
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        twice = values[counts > 1]
        yield f"{len(twice)} row ids are there more than once, the first is {twice[0]}"


def _totals(table: Table, controls: Controls) -> Iterator[str]:
    stored = sum(span.rows for span in table.spans())
    committed = sum(held.body.rows for held in controls.producers.values())
    removed = controls.memory.removed_rows
    if stored + removed != committed:
        yield f"{stored} rows are stored and {removed} were removed, but the producers committed {committed}"


def _watermarks(table: Table, controls: Controls) -> Iterator[str]:
    end = max(end_of(table.spans()), controls.memory.removed_below)
    for name, group in controls.stream.body.groups.items():
        for index in range(group.count):
            mark = watermark(controls, name, index)
            if mark.generation != group.generation:
                yield f"consumer {name}/{index} is of generation {mark.generation}, its group of {group.generation}"
            if not group.start <= mark.offset <= end:
                yield f"the watermark of consumer {name}/{index}, {mark.offset}, is outside of [{group.start}, {end}]"


def _tags(table: Table) -> Iterator[str]:
    for tag, about in table.dataset.tags.list().items():
        yield f"version {about['version']} is tagged {tag!r}: it is never cleaned up; remove the tag and use a snapshot"


def _sequences(table: Table, controls: Controls, columns: Mapping[str, str]) -> Iterator[str]:
    who, what = columns["producer"], columns["sequence"]
    for name in (who, what):
        if name not in table.identity.schema.names:
            raise StreamError("is no column of the stream", field="columns", value=name)
    rows = table.scan([span.fragment for span in table.spans()], [who, what], "_rowid >= 0").combine_chunks()
    by_name = {
        p: rows.filter(pa.compute.equal(rows[who], p)).sort_by("_rowid")
        for p in pa.compute.unique(rows[who]).to_pylist()
    }
    for name in sorted({*by_name, *controls.producers} - {None}):
        held = controls.producers.get(name)
        if held is None:
            yield f"there are rows of {name!r}, which is no producer of this stream"
            continue
        found = by_name[name][what].to_numpy() if name in by_name else np.empty(0, np.int64)
        first = held.body.rows - len(found)  # what retention took is the beginning
        if first and not controls.memory.removed_rows:
            yield f"producer {name!r} committed {held.body.rows} rows and {len(found)} are stored"
        elif not np.array_equal(found, np.arange(first, held.body.rows)):
            wrong = int(np.flatnonzero(found != np.arange(first, first + len(found)))[0])
            yield f"the sequence of producer {name!r} breaks at its row {first + wrong}: there is {found[wrong]}"
