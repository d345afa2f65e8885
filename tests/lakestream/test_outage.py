"""S3 is gone for a while, under everybody: its server is killed and started again. Nobody ends, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.lakestream import Stream
from tests.lakestream.stores import BUCKET, store_in
from tests.lakestream.storm import differences
from tests.lakestream.worker import SCHEMA, lines, processes, work
from tests.processes import wait_until
from tests.seaweed import Seaweed

PRODUCERS = ["p0", "p1"]
GONE = 6.0  # seconds


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Seaweed]:
    made = Seaweed(tmp_path / "server", BUCKET)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_producers_and_consumers_outlive_their_store(server: Seaweed, tmp_path: Path) -> None:
    store = store_in(server)
    stream = Stream.create(store.uri("o"), SCHEMA, storage_options=store.options)
    logs = {name: tmp_path / name for name in (*PRODUCERS, "c0", "c1")}
    roles = [("producer", stream.uri, name, "0", str(logs[name])) for name in PRODUCERS]
    roles += [("consumer", stream.uri, "g", str(i), "2", str(logs[f"c{i}"])) for i in range(2)]
    running = [
        processes().Process(target=work, args=(store.environment, str(tmp_path / f"{i}.out"), *role), daemon=True)
        for i, role in enumerate(roles)
    ]
    for process in running:
        process.start()
    try:
        wait_until(lambda: all(len(lines(log)) > 5 for log in logs.values()), "nobody got going", 90)
        server.kill()
        done = {name: len(lines(log)) for name, log in logs.items()}
        time.sleep(GONE)
        assert all(len(lines(log)) <= done[name] + 1 for name, log in logs.items()), "the store was not gone"
        server.start()
        wait_until(
            lambda: all(len(lines(log)) > done[name] + 5 for name, log in logs.items()), "they did not go on", 90
        )
        stream.close()
        for process in running:
            process.join(60)
        assert [process.exitcode for process in running] == [0] * 4, [p.read_text() for p in tmp_path.glob("*.out")]
    finally:
        for process in running:
            process.kill()
            process.join()
    assert stream.verify({"producer": "producer", "sequence": "seq"}) == []
    expected = {p.name: p.rows for p in stream.describe().producers}
    seen = [pair for i in range(2) for _, batch in lines(logs[f"c{i}"]) for pair in batch]
    assert differences(seen, expected) == []
    for producer in stream.describe().producers:
        assert producer.epoch == 1 and lines(logs[producer.name])[-1][0] <= producer.cursor
