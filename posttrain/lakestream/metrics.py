"""Prometheus metrics of every stream that this process touches, in prometheus_client's default registry.

The label `stream` is the last part of the URI. Seconds and bytes are base units, counters end in `_total`.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_LATENCY = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

COMMITS = Counter("lakestream_commits_total", "Commits that landed", ["stream", "producer"])
ROWS = Counter("lakestream_rows_total", "Rows committed", ["stream", "producer"])
BYTES = Counter("lakestream_bytes_total", "Bytes of data files committed", ["stream", "producer"])
CONFLICTS = Counter("lakestream_conflicts_total", "Commits refused because another landed first", ["stream"])
RETRIES = Counter("lakestream_retries_total", "Tries after the first", ["stream", "reason"])
GHOSTS = Counter("lakestream_ghosts_total", "Commits that landed on a version already cleaned up", ["stream"])
COMMIT_SECONDS = Histogram("lakestream_commit_seconds", "From append to known landed", ["stream"], buckets=_LATENCY)
WAITING = Gauge("lakestream_producers_waiting", "Producers held back by admission", ["stream"])
WAIT_SECONDS = Counter("lakestream_wait_seconds_total", "Time spent waiting for admission", ["stream"])
READ_ROWS = Counter("lakestream_read_rows_total", "Rows handed to consumers", ["stream", "group"])
LAG_ROWS = Gauge("lakestream_lag_rows", "Rows not yet acknowledged", ["stream", "group", "index"])
LAG_COMMITS = Gauge("lakestream_lag_commits", "Commits since the acknowledged one", ["stream", "group", "index"])
FRAGMENTS = Gauge("lakestream_fragments", "Data fragments of the latest version", ["stream"])
VERSIONS = Gauge("lakestream_versions", "Versions kept", ["stream"])
STORED_BYTES = Gauge("lakestream_stored_bytes", "Bytes of the latest version's data files", ["stream"])
REMOVED_ROWS = Counter("lakestream_removed_rows_total", "Rows removed by retention", ["stream"])
