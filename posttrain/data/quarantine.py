"""Bad rows: kept with their reason, counted, and too many of them stop the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from posttrain.data.config import ROOT
from posttrain.data.schema import QUARANTINE, Rejected
from posttrain.errors import UserError


def reasons(rejected: Sequence[Rejected]) -> dict[str, int]:
    """Rows by reason, the most frequent first."""
    return dict(sorted(Counter(row.reason for row in rejected).items(), key=lambda item: (-item[1], item[0])))


def check_share(rejected: Sequence[Rejected], total: int, limit: float, where: str) -> None:
    """UserError where more than the share `limit` of the `total` rows were bad; `where` says where they are."""
    if len(rejected) > limit * total:
        counts = ", ".join(f"{name} {count}" for name, count in reasons(rejected).items())
        raise UserError(
            f"{len(rejected)} of {total} rows are bad, more than {limit:.1%}: {counts}",
            field=f"{ROOT}.quarantine_limit", value=limit, remedy=f"see them in {where}",
        )  # fmt: skip


def to_table(rejected: Sequence[Rejected], labels: list[str]) -> pa.Table:
    rows = [
        {"source": labels[r.source], "place": r.place, "reason": r.reason, "detail": r.detail, "content": r.content}
        for r in rejected
    ]
    return pa.Table.from_pylist(rows, schema=QUARANTINE)
