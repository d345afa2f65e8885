"""What a stream is and how it does, as plain data for people and for dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.lakestream import metrics
from posttrain.lakestream.admission import Lag
from posttrain.lakestream.controls import Controls, Cursor, Settings
from posttrain.lakestream.offsets import end_of
from posttrain.lakestream.storage import name_of
from posttrain.lakestream.table import Table, answers

_LAST = 10


@dataclass(frozen=True)
class ProducerState:
    name: str
    epoch: int
    cursor: Cursor
    commits: int
    rows: int
    at: float  # seconds since 1970 of its last commit or registration


@dataclass(frozen=True)
class Description:
    """`rows` counts what is stored, `removed_rows` what retention has taken; `commits` are the newest first."""

    uri: str
    schema: str
    columns: dict[str, str]
    closed: bool
    settings: Settings
    version: int
    versions: int
    fragments: int
    controls: int
    rows: int
    bytes: int
    end: int
    removed_rows: int
    removed_below: int
    maintained_at: float
    producers: list[ProducerState]
    consumers: list[Lag]
    commits: list[tuple[int, str]]


def describe(table: Table, controls: Controls, lags: Sequence[Lag]) -> Description:
    spans, identity, memory = table.spans(), table.identity, controls.memory
    with answers(table.uri):
        versions = len(table.dataset.version_refs())
        recent = [t for t in table.dataset.get_transactions(min(_LAST, versions - 1)) if t is not None]
    said = [
        (t.transaction_properties or {}).get("__lance_commit_message") or type(t.operation).__name__ for t in recent
    ]
    label = name_of(table.uri)
    metrics.VERSIONS.labels(label).set(versions)
    metrics.FRAGMENTS.labels(label).set(len(spans))
    return Description(
        uri=table.uri,
        schema=f"{identity.name} version {identity.version}" if identity.name else "unnamed",
        columns={field.name: str(field.type) for field in identity.schema},
        closed=controls.stream.body.closed,
        settings=controls.stream.body.settings,
        version=table.version,
        versions=versions,
        fragments=len(spans),
        controls=len(controls.all()),
        rows=sum(span.rows for span in spans),
        bytes=sum(span.bytes for span in spans),
        end=end_of(spans),
        removed_rows=memory.removed_rows,
        removed_below=memory.removed_below,
        maintained_at=memory.marks[-1].at if memory.marks else 0.0,
        producers=[
            ProducerState(p.name, p.epoch, p.cursor, p.commits, p.rows, p.at)
            for p in (held.body for _, held in sorted(controls.producers.items()))
        ],
        consumers=list(lags),
        commits=[(table.version - back, text) for back, text in enumerate(said)],
    )
