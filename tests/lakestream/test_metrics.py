"""What a dashboard sees: each metric of a stream moves with what it counts, and notable events are logged."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from prometheus_client import REGISTRY

from posttrain.lakestream import AdmissionTimeout, Policy, Settings, Stream
from tests.lakestream.stores import Store
from tests.lakestream.worker import SCHEMA, rows


def value(name: str, stream: str = "counted", **labels: str) -> float:
    return REGISTRY.get_sample_value(f"lakestream_{name}", {"stream": stream} | labels) or 0.0


@pytest.fixture
def counted(local: Store) -> Stream:
    return Stream.create(local.uri("counted"), SCHEMA)


def test_commits_rows_bytes_and_latency_are_counted(counted: Stream) -> None:
    before = {name: value(name, producer="m") for name in ("commits_total", "rows_total", "bytes_total")}
    took = value("commit_seconds_count")
    producer = counted.producer("m")
    for i in range(3):
        producer.append(rows("m", 5 * i, 5), i + 1)
    assert value("commits_total", producer="m") - before["commits_total"] == 3
    assert value("rows_total", producer="m") - before["rows_total"] == 15
    assert value("bytes_total", producer="m") - before["bytes_total"] == counted.describe().bytes > 0
    assert value("commit_seconds_count") - took == 3


def test_lag_fragments_versions_and_what_was_read_are_shown(counted: Stream) -> None:
    producer, consumer = counted.producer("m"), counted.consumer(group="shown")
    for i in range(4):
        producer.append(rows("m", i, 1), i + 1)
    counted.lag()
    assert (value("lag_rows", group="shown", index="0"), value("lag_commits", group="shown", index="0")) == (4, 4)
    consumer.poll()
    counted.acknowledge(consumer)
    counted.lag()
    assert value("lag_rows", group="shown", index="0") == 0
    assert value("read_rows_total", group="shown") == 4
    counted.describe()
    assert value("fragments") == 4
    for _ in range(2):  # the first run notes what is old for the second
        counted.maintain(Policy(keep_versions=0, retain=0))
    assert value("fragments") == 0 and value("removed_rows_total") >= 4 and value("stored_bytes") == 0
    assert 0 < value("versions") < 5


def test_a_producer_that_waits_is_seen_waiting(counted: Stream) -> None:
    counted.configure(Settings(max_lag_rows=1))
    counted.consumer(group="slow")
    producer = counted.producer("m", admission_timeout=1.0)
    producer.append(rows("m", 0, 5), 1)
    seen: list[float] = []

    def wait() -> None:
        with pytest.raises(AdmissionTimeout):
            producer.append(rows("m", 5, 5), 2)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        seen.append(value("producers_waiting"))
        time.sleep(0.02)
    waiting.join()
    assert max(seen) == 1 and value("producers_waiting") == 0 and value("wait_seconds_total") > 0.5


def test_conflicts_retries_and_fences_are_told(counted: Stream, caplog: pytest.LogCaptureFixture) -> None:
    conflicts, retries = value("conflicts_total"), value("retries_total", reason="conflict")
    caplog.set_level(logging.INFO, "posttrain.lakestream")
    producer = counted.producer("m")
    producer.append(rows("m", 0, 1), 1)
    other = Stream.open(counted.uri)
    other.maintain(Policy(keep_versions=0))  # its fence conflicts with what read an older version
    producer.append(rows("m", 1, 1), 2)
    assert value("conflicts_total") == conflicts + 1 and value("retries_total", reason="conflict") == retries + 1
    told = [record.event.name for record in caplog.records if hasattr(record, "event")]
    assert {"registered", "fenced"} <= set(told)
