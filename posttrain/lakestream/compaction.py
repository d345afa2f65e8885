"""Small fragments made into one, in the order of row ids. What is to be merged is decided by `upkeep.to_compact`.

Lance's own compaction goes by the order of fragments, in which a merged one comes after those that landed while it
was written, and it keeps for each row the version that it came with. So every manifest would hold some 30 bytes
for each commit there ever was, and each commit would write them again. In the order of ids the rows of a merged
fragment are one run with holes, of at most 4 bytes; and of versions nothing is kept, because an offset says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from posttrain.lakestream.offsets import Span
from posttrain.lakestream.table import Table, answers


def indexed(table: Table) -> dict[int, frozenset[str]]:
    """The names of the indexes that cover a fragment, by fragment; none for those that are left out. Unanswered."""
    with answers(table.uri):
        indexes = table.dataset.describe_indices()
    covered: dict[int, frozenset[str]] = {}
    for index in indexes:
        for fragment in {fragment for segment in index.segments for fragment in segment.fragment_ids}:
            covered[fragment] = covered.get(fragment, frozenset()) | {index.name}
    return covered


def stage(table: Table, group: Sequence[Span]) -> FragmentMetadata:
    """One fragment with the rows of `group` in its order, under the ids that they have. Raises Unanswered."""
    ids = np.concatenate([table.stored_ids(span) for span in group])
    fragments = [table.fragment(span.fragment) for span in group]
    with answers(table.uri):
        rows = table.dataset.scanner(columns=table.identity.schema.names, fragments=fragments).to_reader()
        (merged,) = write_fragments(rows, table.dataset, mode="append", max_rows_per_file=len(ids))
    assert merged.physical_rows == len(ids)
    return replace(merged, row_id_meta=RowIdSequence(pa.array(ids)).to_inline_metadata())


def put(table: Table, groups: Sequence[Sequence[Span]], merged: Sequence[FragmentMetadata]) -> None:
    """Commit each of `merged` in place of its group. Raises Conflict where a fragment is gone; Unanswered."""
    parts = [
        LanceOperation.RewriteGroup([table.fragment(span.fragment).metadata for span in group], [fragment])
        for group, fragment in zip(groups, merged, strict=True)
    ]
    with answers(table.uri):
        LanceDataset.commit(
            table.dataset, LanceOperation.Rewrite(parts, []), read_version=table.version, commit_message="compact"
        )
